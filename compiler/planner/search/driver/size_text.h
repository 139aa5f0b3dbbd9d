// Sizes of memory as messages tell them.
//
//   bytesText(4.55 * 1048576) == "4.55 MiB"
#pragma once
#include <string>

namespace cleave::planner {

// Three digits: 4.55 MiB, 30.1 GiB.
std::string bytesText(double bytes);
// The next larger size that bytesText() tells exactly.
double roundedUp(double bytes);

} // namespace cleave::planner
