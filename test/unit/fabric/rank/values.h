// Numbers that every rank can compute for every other, and what the plain loops make of them.
#pragma once
#include "plan/plan.pb.h"
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace cleave::runtime::test {

// An element of the tensor `part` of the device, of F32, BF16 or I32: exact in its type.
double valueOf(plan::DType dtype, int64_t device, int64_t part, int64_t step, int64_t element);
// In the order given, in float where the type has one; bf16 is rounded once.
double reduceInOrder(plan::DType dtype, plan::Collective::Reduce reduce, const std::vector<double> &values);
void store(plan::DType dtype, double value, std::byte *to);
double load(plan::DType dtype, const std::byte *from);
// The first element that differs, "element 5 is 3, 4 is expected"; empty: none. `tolerance`: of the larger of 1 and the
// expected value; 0: bits.
std::string compare(plan::DType dtype, const std::byte *bytes, const std::vector<double> &expected, double tolerance);

} // namespace cleave::runtime::test
