// The names under which a plan keeps the fp32 copy of a parameter that it holds in 16 bits, and the moving average of a
// parameter.
//
//   masterName("fc.weight") == "master/fc.weight", averageName("fc.weight") == "ema/fc.weight"
#pragma once
#include <string>

namespace cleave::runtime {

inline std::string masterName(const std::string &parameter) { return "master/" + parameter; }
inline constexpr const char *averagePrefix = "ema/", *averageKind = "ema";
inline std::string averageName(const std::string &parameter) { return averagePrefix + parameter; }

// The parameter that a tensor is the average of; "": of none.
inline std::string averagedBy(const std::string &tensor) {
  const std::string prefix = averagePrefix;
  return tensor.starts_with(prefix) ? tensor.substr(prefix.size()) : "";
}

} // namespace cleave::runtime
