// Elements of real types, one at a time.
//
//     storeFloat(0.5, plan::BF16, bytes, 3);      // element 3
//     loadFloat(plan::BF16, bytes, 3) == 0.5
#pragma once
#include "plan/plan.pb.h"
#include "runtime/plan/narrow_floats.h"
#include <cstddef>
#include <cstring>

namespace cleave::runtime {

// `type`: F16, BF16, F32 or F64.
inline double loadFloat(plan::DType type, const std::byte *from, int64_t i) {
  auto element = [&](auto value) {
    std::memcpy(&value, from + i * int64_t(sizeof value), sizeof value);
    return value;
  };
  switch (type) {
  case plan::F16:
    return floatOfHalf(element(uint16_t()));
  case plan::BF16:
    return floatOfBrain(element(uint16_t()));
  case plan::F32:
    return element(float());
  default:
    return element(double());
  }
}

inline void storeFloat(double value, plan::DType type, std::byte *out, int64_t i) {
  auto element = [&](auto stored) { std::memcpy(out + i * int64_t(sizeof stored), &stored, sizeof stored); };
  switch (type) {
  case plan::F16:
    return element(halfOfFloat(static_cast<float>(value)));
  case plan::BF16:
    return element(brainOfFloat(static_cast<float>(value)));
  case plan::F32:
    return element(static_cast<float>(value));
  default:
    return element(value);
  }
}

} // namespace cleave::runtime
