// Seconds of what cannot be, and bytes where there is no limit.
#pragma once
#include <limits>

namespace cleave::planner {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

} // namespace cleave::planner
