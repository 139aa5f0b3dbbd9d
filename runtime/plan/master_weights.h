// The name under which a plan keeps the fp32 copy of a parameter that it holds in 16 bits.
//
//   masterName("fc.weight") == "master/fc.weight"
#pragma once
#include <string>

namespace cleave::runtime {

inline std::string masterName(const std::string &parameter) { return "master/" + parameter; }

} // namespace cleave::runtime
