// The names under which a plan keeps the fp32 copy of a parameter that it holds in 16 bits, and the moving average of a
// parameter.
//
//   masterName("fc.weight") == "master/fc.weight", averageName("fc.weight") == "ema/fc.weight"
#pragma once
#include <string>

namespace cleave::runtime {

inline std::string masterName(const std::string &parameter) { return "master/" + parameter; }
inline constexpr const char *averagePrefix = "ema/";
inline std::string averageName(const std::string &parameter) { return averagePrefix + parameter; }

} // namespace cleave::runtime
