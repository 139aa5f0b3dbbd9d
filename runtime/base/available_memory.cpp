#include "runtime/base/available_memory.h"
#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace cleave::runtime {
namespace {

constexpr int64_t unknown = std::numeric_limits<int64_t>::max() / 2;

int64_t numberIn(const std::string &path) { // "max" and a missing file: not limited
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? number : unknown;
}

// The number behind `key` in lines of "key number".
int64_t entryIn(const std::string &path, const std::string &key) {
  std::ifstream file(path);
  int64_t number = 0;
  for (std::string found, line; file >> found; std::getline(file, line))
    if (found == key && file >> number) return number;
  return unknown;
}

} // namespace

int64_t availableMemory() {
  const int64_t kib = entryIn("/proc/meminfo", "MemAvailable:");
  const int64_t available = kib == unknown ? unknown : kib * 1024;
  const std::string group = "/sys/fs/cgroup/";
  const int64_t limit = numberIn(group + "memory.max"), used = numberIn(group + "memory.current");
  if (limit == unknown || used == unknown) return available;
  const int64_t cached = entryIn(group + "memory.stat", "inactive_file"); // the system takes it back when asked
  return std::min(available, std::max<int64_t>(0, limit - used + (cached == unknown ? 0 : cached)));
}

} // namespace cleave::runtime
