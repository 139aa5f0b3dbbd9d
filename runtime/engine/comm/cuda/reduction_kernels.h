// Sums (maxima, minima) of the same elements of several devices, in the devices' order, as PTX text: what in-process
// collectives between ranks that share a GPU need and no library has.
//
//   std::string text = reductionPtx();   // every dtype that can be reduced, every operation
//   reductionName(plan::F32, plan::Collective::SUM)   "cleave_reduce_f32_sum"
//
// Parameters, all 64 bits: out, table (in device memory: the address of every device's input), devices, row, pitch,
// count. out[i] = reduction over d of table[d][i / row * pitch + i % row] for i in [0, count). Halves are summed in
// float and rounded once, as on the CPU (comm/reduce.h). Any grid; blocks of any size.
#pragma once
#include "plan/plan.pb.h"
#include <string>

namespace cleave::runtime::cuda {

std::string reductionPtx();
// Empty for a dtype that cannot be reduced.
std::string reductionName(plan::DType dtype, plan::Collective::Reduce reduce);

} // namespace cleave::runtime::cuda
