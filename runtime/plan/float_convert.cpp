#include "runtime/plan/float_convert.h"
#include "runtime/base/narrow_floats.h"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace cleave::runtime {
namespace {

double halfToDouble(uint16_t half) {
  int exponent = half >> 10 & 31, fraction = half & 1023;
  double magnitude = exponent == 0    ? std::ldexp(fraction, -24)
                     : exponent == 31 ? (fraction ? NAN : INFINITY)
                                      : std::ldexp(1024 + fraction, exponent - 25);
  return half & 0x8000 ? -magnitude : magnitude;
}

uint16_t doubleToHalf(double value) {
  uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  double magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (magnitude == 0) return sign;
  if (magnitude >= 65520.0) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(magnitude, &exponent);        // magnitude = m * 2^exponent, m in [0.5, 1)
  int unit = std::max(exponent - 11, -24); // of the last place
  auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, -unit)));
  // Subnormals have unit 2^-24 and no hidden bit; the carry of rounding moves into the exponent by itself.
  int bits = unit == -24 && units < 1024 ? units : ((unit + 25) << 10) + (units - 1024);
  return static_cast<uint16_t>(sign | bits);
}

uint16_t doubleToBf16(double value) {
  auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
  if (std::isnan(value)) return static_cast<uint16_t>(bits >> 16 | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// A float of 8 bits: bits of its fraction, exponent of its smallest normal number, largest number.
struct Eight {
  int fraction, least;
  double largest;
};
constexpr Eight e4m3{3, -6, 448}, e5m2{2, -14, 57344};

uint8_t doubleToEight(const Eight &type, double value) {
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  if (std::isnan(value)) return sign | 0x7f;
  const double magnitude = std::min(std::fabs(value), type.largest);
  const int exponent = magnitude < std::ldexp(1, type.least) ? type.least : std::ilogb(magnitude);
  // In units of the last place; a carry runs into the exponent as it should.
  const auto units = static_cast<int>(std::nearbyint(std::ldexp(magnitude, type.fraction - exponent)));
  return static_cast<uint8_t>(sign | (units + ((exponent - type.least) << type.fraction)));
}

template <typename Bits> Bits load(const std::byte *from) {
  Bits value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

template <typename Bits> void store(std::byte *to, Bits value) { std::memcpy(to, &value, sizeof value); }

} // namespace

double loadFloat(plan::DType dtype, const std::byte *from) {
  switch (dtype) {
  case plan::F32:
    return load<float>(from);
  case plan::F64:
    return load<double>(from);
  case plan::F16:
    return halfToDouble(load<uint16_t>(from));
  case plan::BF16:
    return std::bit_cast<float>(uint32_t(load<uint16_t>(from)) << 16);
  case plan::F8E4M3:
    return floatOfE4M3(load<uint8_t>(from));
  case plan::F8E5M2:
    return floatOfE5M2(load<uint8_t>(from));
  default:
    return NAN;
  }
}

void storeFloat(plan::DType dtype, double value, std::byte *to) {
  switch (dtype) {
  case plan::F32:
    return store(to, static_cast<float>(value));
  case plan::F64:
    return store(to, value);
  case plan::F16:
    return store(to, doubleToHalf(value));
  case plan::BF16:
    return store(to, doubleToBf16(value));
  case plan::F8E4M3:
    return store(to, doubleToEight(e4m3, value));
  case plan::F8E5M2:
    return store(to, doubleToEight(e5m2, value));
  default:
    return;
  }
}

} // namespace cleave::runtime
