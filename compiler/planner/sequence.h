// Which dimension of every tensor counts positions of a sequence (tokens, time steps).
//
// It is the dimension of a matrix product with a weight that is neither the sample nor in the weight; it flows from
// there to every tensor that the factor rules connect: ([b,s,k],[k,n]) -> [b,s,n] makes dimension 1 the sequence.
#pragma once
#include "compiler/planner/problem.h"
#include <cstdint>
#include <vector>

namespace cleave::planner {

// Per tensor; -1: none. `batchFactors`: per node, the factor that counts samples.
std::vector<int64_t> findSequenceDims(const Problem &problem, const std::vector<int64_t> &batchFactors);

} // namespace cleave::planner
