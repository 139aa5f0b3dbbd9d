// The batch dimensions of a contraction as its strides have them, for libraries that want as few as can be.
//
//   batch 4 x 6, every operand's strides 6 s and s     ->  one dimension of 24, strides s
//   batch 4 x 1                                        ->  one of 4
#pragma once
#include "plan/plan.pb.h"
#include <cstdint>
#include <vector>

namespace cleave::runtime {

struct ContractBatch {
  int64_t size, lhs, rhs, out; // strides in elements; 0 where the operand has no such dimension
};
// Without dimensions of one, and with those merged that run on from the one before.
std::vector<ContractBatch> batchOf(const plan::Contract &contract);

} // namespace cleave::runtime
