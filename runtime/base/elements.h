// Numbers of 16 and 8 bits as bits, to and from f32 and f64: the only conversions of the runtime. Each rounds once, to
// the nearest, ties to even; a NaN stays one, subnormal numbers stay exact. Without branches, so that loops over them
// vectorise on every CPU; compilers' own conversions call functions where the CPU has no instruction.
//
//   fp16ToFloat(0x3c00) == 1       floatToFp16(65520) == 0x7c00, infinity
//   bf16ToFloat(0x3f80) == 1       floatToBf16(1 + 0x1p-8f) == 0x3f80, doubleToBf16(1 + 0x1p-8 + 0x1p-40) == 0x3f81
//
// Floats of 8 bits are those of OCP's specification, as PyTorch's float8_e4m3fn and float8_e5m2. Numbers beyond
// their largest one become that number, infinity too (cvt.rn.satfinite):
//
//   floatToE4M3(1) == 0x38   floatToE4M3(1e9f) == 0x7e, 448
//   floatToE5M2(1) == 0x3c   floatToE5M2(1e9f) == 0x7b, 57344
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>

namespace cleave::runtime {

constexpr float bf16ToFloat(uint16_t bits) { return std::bit_cast<float>(uint32_t(bits) << 16); }

constexpr uint16_t floatToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  return static_cast<uint16_t>(((bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : rounded) >> 16);
}

constexpr float fp16ToFloat(uint16_t half) {
  // Exponent and fraction at their places; the exponent's bias grows from 15 to 127.
  const uint32_t magnitude = uint32_t(half & 0x7fff) << 13, exponent = magnitude & 0x1f << 23;
  const uint32_t normal = magnitude + (112u << 23);
  // Infinity and NaN have the largest exponent of both. A subnormal number is a multiple of 2^-24.
  const float unit = std::bit_cast<float>(113u << 23);
  const auto subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(normal + (1u << 23)) - unit);
  const uint32_t value = exponent == 0 ? subnormal : exponent == 0x1f << 23 ? normal + (112u << 23) : normal;
  return std::bit_cast<float>(value | uint32_t(half & 0x8000) << 16);
}

constexpr uint16_t floatToFp16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits & 0x80000000u, magnitude = bits ^ sign;
  // 13 bits are rounded away; what rounds up to 2^16 becomes infinity by its carry.
  const uint32_t normal = (magnitude + ((15u - 127u) << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // 0.5 has a last place of 2^-24, the unit of subnormal numbers: the addition rounds to it.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t large = magnitude > 0x7f800000u ? 0x7e00 : 0x7c00;
  const uint32_t half = magnitude >= 0x47800000u ? large : magnitude < 0x38800000u ? subnormal : normal;
  return static_cast<uint16_t>(half | sign >> 16);
}

constexpr float e5m2ToFloat(uint8_t bits) { return fp16ToFloat(static_cast<uint16_t>(bits << 8)); }

constexpr float e4m3ToFloat(uint8_t bits) {
  // As of a half; the exponent's bias grows from 7 to 127, a subnormal number is a multiple of 2^-9.
  const uint32_t magnitude = uint32_t(bits & 0x7f) << 20, normal = magnitude + (120u << 23);
  const float unit = std::bit_cast<float>(121u << 23);
  const auto subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(normal + (1u << 23)) - unit);
  const uint32_t value = magnitude < 1u << 23 ? subnormal : magnitude == 0x7fu << 20 ? 0x7fc00000u : normal;
  return std::bit_cast<float>(value | uint32_t(bits & 0x80) << 24);
}

// With so many bits of fraction; `bias` of the exponent, `largest` number as the bits of an f32.
template <int fraction, uint32_t bias, uint32_t largest> constexpr uint8_t floatToFp8(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits & 0x80000000u, whole = bits ^ sign, magnitude = std::min(whole, largest);
  constexpr int dropped = 23 - fraction;
  const uint32_t odd = magnitude >> dropped & 1;
  const uint32_t normal = (magnitude + ((bias - 127u) << 23) + ((1u << (dropped - 1)) - 1) + odd) >> dropped;
  // A power of two whose last place is the unit of subnormal numbers: the addition rounds to it.
  constexpr uint32_t unit = (128u - bias + dropped) << 23;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + std::bit_cast<float>(unit)) - unit;
  const uint32_t code = whole > 0x7f800000u ? 0x7f : magnitude < (128u - bias) << 23 ? subnormal : normal;
  return static_cast<uint8_t>(code | sign >> 24);
}
constexpr uint8_t floatToE4M3(float value) { return floatToFp8<3, 7, 0x43e00000>(value); }
constexpr uint8_t floatToE5M2(float value) { return floatToFp8<2, 15, 0x47600000>(value); }

// The f32 beside an f64, towards zero, its last bit set where it is not the same number: rounding it to a format of at
// most 22 bits is rounding the f64 (Boldo and Melquiond, "When double rounding is odd", IMACS 2005).
constexpr float doubleToOddFloat(double value) {
  const float nearest = static_cast<float>(value);
  if (double(nearest) == value || value != value) return nearest;
  const bool isLarger = (nearest > value) == (value > 0);
  return std::bit_cast<float>((std::bit_cast<uint32_t>(nearest) - (isLarger ? 1 : 0)) | 1);
}
constexpr uint16_t doubleToBf16(double value) { return floatToBf16(doubleToOddFloat(value)); }
constexpr uint16_t doubleToFp16(double value) { return floatToFp16(doubleToOddFloat(value)); }
constexpr uint8_t doubleToE4M3(double value) { return floatToE4M3(doubleToOddFloat(value)); }
constexpr uint8_t doubleToE5M2(double value) { return floatToE5M2(doubleToOddFloat(value)); }

} // namespace cleave::runtime
