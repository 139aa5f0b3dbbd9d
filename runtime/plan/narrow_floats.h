// Floats of 16 bits as bits, to and from f32: to the nearest, ties to even; a NaN stays one, subnormal numbers stay
// exact. Without branches, so that loops over them vectorise on every CPU; compilers' own conversions call functions
// where the CPU has no instruction.
//
//   floatOfHalf(0x3c00) == 1       halfOfFloat(65520) == 0x7c00, infinity
//   floatOfBrain(0x3f80) == 1      brainOfFloat(1.00390625f) == 0x3f80
#pragma once
#include <bit>
#include <cstdint>

namespace cleave::runtime {

constexpr float floatOfBrain(uint16_t brain) { return std::bit_cast<float>(uint32_t(brain) << 16); }

constexpr uint16_t brainOfFloat(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);
  return static_cast<uint16_t>(((bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : rounded) >> 16);
}

constexpr float floatOfHalf(uint16_t half) {
  // Exponent and fraction at their places; the exponent's bias grows from 15 to 127.
  const uint32_t magnitude = uint32_t(half & 0x7fff) << 13, exponent = magnitude & 0x1f << 23;
  const uint32_t normal = magnitude + (112u << 23);
  // Infinity and NaN have the largest exponent of both. A subnormal number is a multiple of 2^-24.
  const float unit = std::bit_cast<float>(113u << 23);
  const auto subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(normal + (1u << 23)) - unit);
  const uint32_t value = exponent == 0 ? subnormal : exponent == 0x1f << 23 ? normal + (112u << 23) : normal;
  return std::bit_cast<float>(value | uint32_t(half & 0x8000) << 16);
}

constexpr uint16_t halfOfFloat(float value) {
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

} // namespace cleave::runtime
