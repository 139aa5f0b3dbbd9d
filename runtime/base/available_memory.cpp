#include "runtime/base/available_memory.h"
#include "runtime/base/control_groups.h"
#include <algorithm>
#include <fstream>

namespace cleave::runtime {

int64_t availableMemory(const std::string &root) {
  std::ifstream file(root + "/proc/meminfo");
  int64_t kib = 0;
  for (std::string found, line; file >> found; std::getline(file, line))
    if (found == "MemAvailable:" && file >> kib) return std::min(kib * 1024, memoryLeft(root));
  return memoryLeft(root);
}

} // namespace cleave::runtime
