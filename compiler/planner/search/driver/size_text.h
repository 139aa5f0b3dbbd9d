// Sizes of memory as messages tell them.
//
//   bytesText(4.55 * 1048576) == "4.55 MiB"
#pragma once
#include "compiler/planner/problem/decision.h"
#include <string>

namespace cleave::planner {
struct Cluster;
}

namespace cleave::planner {

// Three digits: 4.55 MiB, 30.1 GiB.
std::string bytesText(double bytes);
// The next larger size that bytesText() tells exactly.
double roundedUp(double bytes);
// Why a plan does not fit: on the device, or what it has in the host's memory. "": it fits.
std::string whatIsShort(const MemoryBreakdown &memory, const Cluster &cluster);

} // namespace cleave::planner
