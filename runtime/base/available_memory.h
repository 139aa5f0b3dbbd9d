// Memory that this process can still take, in bytes: what the system says is available, and what its control groups
// leave. A very large number where neither is told.
#pragma once
#include <cstdint>
#include <string>

namespace cleave::runtime {

int64_t availableMemory(const std::string &root = ""); // `root` as in control_groups.h

} // namespace cleave::runtime
