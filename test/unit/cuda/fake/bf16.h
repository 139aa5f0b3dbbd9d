// The upper half of a float, rounded to the nearest, ties to even.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

namespace fake {

struct Bf16 {
  uint16_t bits = 0;
  Bf16() = default;
  explicit Bf16(float value) {
    uint32_t all;
    std::memcpy(&all, &value, 4);
    bits = static_cast<uint16_t>(std::isnan(value) ? all >> 16 | 0x40 : (all + 0x7fff + (all >> 16 & 1)) >> 16);
  }
  explicit operator float() const {
    uint32_t all = uint32_t(bits) << 16;
    float value;
    std::memcpy(&value, &all, 4);
    return value;
  }
};

} // namespace fake
