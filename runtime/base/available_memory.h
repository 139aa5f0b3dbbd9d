// Memory that this process can still take, in bytes: what the system says is available, and what the control group
// leaves. A very large number where neither is told.
#pragma once
#include <cstdint>

namespace cleave::runtime {

int64_t availableMemory();

} // namespace cleave::runtime
