// Elements of NVIDIA's types as numbers.
#pragma once
#include "test/unit/cuda/fake/bf16.h"
#include <cmath>
#include <cstdint>

namespace fake {

enum class Number { F32, F64, F16, Bf16, E4m3, E5m2 };

// All codes of a type: sign, exponent, fraction. In e4m3 (3 bits of fraction) only the last code is no number.
struct EightBits {
  EightBits(int fractionBits, int bias) {
    for (int code = 0; code < 256; ++code) {
      const int exponent = (code & 0x7f) >> fractionBits, fraction = code & ((1 << fractionBits) - 1);
      const double size = std::ldexp(fraction, -fractionBits) + (exponent ? 1 : 0);
      double number = std::ldexp(size, (exponent ? exponent : 1) - bias);
      if (fractionBits == 3 && (code & 0x7f) == 0x7f) number = NAN;
      if (fractionBits == 2 && exponent == 31) number = fraction ? NAN : INFINITY;
      numbers[code] = code & 0x80 ? -number : number;
    }
  }
  double of(const void *from, int64_t at) const { return numbers[static_cast<const uint8_t *>(from)[at]]; }
  double numbers[256];
};
inline const EightBits e4m3(3, 7), e5m2(2, 15);

inline double load(Number type, const void *from, int64_t at) {
  switch (type) {
  case Number::F32:
    return static_cast<double>(static_cast<const float *>(from)[at]);
  case Number::F64:
    return static_cast<const double *>(from)[at];
  case Number::F16:
    return static_cast<double>(static_cast<const _Float16 *>(from)[at]);
  case Number::E4m3:
    return e4m3.of(from, at);
  case Number::E5m2:
    return e5m2.of(from, at);
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
