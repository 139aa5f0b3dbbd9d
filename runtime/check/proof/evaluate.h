// Terms as numbers: a counterexample for two that are not the same.
#pragma once
#include "runtime/check/proof/store.h"
#include <string>

namespace cleave::proof {

// Values of the tensors, indices and coordinates for which the two terms differ, in words; "" where none was found, be
// it that the terms are too large to evaluate. Tensors' elements are numbers made of their names and indices.
std::string differ(Store &store, Term a, Term b);

} // namespace cleave::proof
