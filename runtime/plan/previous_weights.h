// The names of weights as they were before the last update (PipeDream-2BW keeps two versions).
//
//   "fc.weight" -> "previous/fc.weight"
#pragma once
#include <string_view>

namespace cleave::runtime {

inline constexpr std::string_view previousPrefix = "previous/";

} // namespace cleave::runtime
