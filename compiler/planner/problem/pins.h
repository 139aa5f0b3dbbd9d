// Which of a problem's tensors a pin names, and which of their dimensions.
#pragma once
#include "compiler/planner/problem/constraints.h"

namespace cleave::planner {

// The tensor's dimension that begins where the pin's dimension `dim` does; one that the tensor does not have where none
// begins there. A pin without sizes counts the tensor's own dimensions.
size_t dimensionOf(const Pin &pin, const Tensor &tensor, size_t dim);

// Each pin must name something, have its rank, and put batch axes only where samples are. Error: of the flag.
Status checkPins(const Problem &problem, const std::vector<Pin> &pins);

} // namespace cleave::planner
