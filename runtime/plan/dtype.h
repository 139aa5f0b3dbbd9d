// Sizes and names of the plan's element types.
//
//   byteSize(plan::BF16) == 2, name(plan::I64) == "i64", byteSize(buffer) == elements * byteSize(dtype)
#pragma once
#include "plan/plan.pb.h"
#include <cstdint>
#include <string>

namespace cleave::runtime {

// Bytes of one element; 0 for DTYPE_INVALID and values this build does not know.
int64_t byteSize(plan::DType dtype);
const char *name(plan::DType dtype);
inline bool isFloat(plan::DType dtype) {
  return dtype == plan::F32 || dtype == plan::F64 || dtype == plan::F16 || dtype == plan::BF16 ||
         dtype == plan::F8E4M3 || dtype == plan::F8E5M2;
}
inline bool isFp8BitFloat(plan::DType dtype) { return dtype == plan::F8E4M3 || dtype == plan::F8E5M2; }

// Elements of a shape; -1 when a dimension is negative or the product does not fit in 62 bits.
template <typename Shape> int64_t elementCount(const Shape &shape) {
  int64_t count = 1;
  for (int64_t size : shape)
    if (size < 0 || __builtin_mul_overflow(count, size, &count) || count > (int64_t(1) << 62)) return -1;
  return count;
}
// Bytes of a buffer; -1 when its shape or dtype is not valid.
int64_t byteSize(const plan::Buffer &buffer);
// "f32[4x16] at 8192"
std::string describe(const plan::Buffer &buffer);

} // namespace cleave::runtime
