// Elements of NVIDIA's types as numbers.
#pragma once
#include "test/unit/cuda/fake/bf16.h"

namespace fake {

enum class Number { F32, F64, F16, Bf16 };

inline double load(Number type, const void *from, int64_t at) {
  switch (type) {
  case Number::F32:
    return static_cast<double>(static_cast<const float *>(from)[at]);
  case Number::F64:
    return static_cast<const double *>(from)[at];
  case Number::F16:
    return static_cast<double>(static_cast<const _Float16 *>(from)[at]);
  default:
    return static_cast<double>(static_cast<float>(static_cast<const Bf16 *>(from)[at]));
  }
}
inline void store(Number type, void *to, int64_t at, double value) {
  switch (type) {
  case Number::F32:
    static_cast<float *>(to)[at] = static_cast<float>(value);
    return;
  case Number::F64:
    static_cast<double *>(to)[at] = value;
    return;
  case Number::F16:
    static_cast<_Float16 *>(to)[at] = static_cast<_Float16>(static_cast<float>(value));
    return;
  default:
    static_cast<Bf16 *>(to)[at] = Bf16(static_cast<float>(value));
  }
}

} // namespace fake
