// Which gradients lie in memory beside those of an operation at work, in the backward pass. They are as large and live
// as long as the tensors whose gradients they are, the other way round: from the last reader to the producer.
//
//   y = Contract x, w;  z = Add y, b;  h = Add x, z     x's gradient waits while those of z, y, w are computed
#pragma once
#include "compiler/planner/problem.h"

namespace cleave::planner {

// Per node: bytes, at Problem::samples, of gradients that wait while the node's are computed; of tensors that stand in
// memory there (`inMemory`, per tensor). A sum's gradient is also its terms'.
std::vector<double> gradientsPast(const Problem &problem, const std::vector<bool> &inMemory);

// Per node: where a backward pass is two functions, the gradient of its result stays from the first to the second, for
// the gradient of its parameter. Of operations that pass a gradient on as it is (a bias is added) one of them counts.
std::vector<bool> heldGradients(const Problem &problem);

} // namespace cleave::planner
