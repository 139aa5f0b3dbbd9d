// Numbers of 8 bits with one scale per row, as an optimizer's state has them (compiler/training/fp8/quantized_state.h):
//
//   rowScalesName("exp_avg/fc.weight") == "exp_avg.scale/fc.weight"       number = code * scale of its row
#pragma once
#include <algorithm>
#include <string>

namespace cleave::runtime {

inline constexpr const char *scaleSuffix = ".scale";
inline constexpr double maxCode = 448; // of e4m3
// A row whose largest number is below has the scale 1: a scale near the least f32 would lose digits.
inline constexpr double minRowMaximum = 1e-30;

// Of a tensor "KIND/PARAMETER".
inline std::string rowScalesName(const std::string &tensor) {
  const size_t slash = tensor.find('/');
  return tensor.substr(0, slash) + scaleSuffix + tensor.substr(std::min(slash, tensor.size()));
}

// Of a row whose largest absolute value is given.
inline float rowScale(float largest) { return largest > float(minRowMaximum) ? largest / float(maxCode) : 1; }

} // namespace cleave::runtime
