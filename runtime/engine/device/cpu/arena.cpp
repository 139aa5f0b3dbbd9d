#include "runtime/engine/device/cpu/arena.h"
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <sys/mman.h>

namespace cleave::runtime {

namespace {
constexpr size_t hugePage = size_t(2) << 20;
}

Arena::~Arena() {
  if (map) ::munmap(map, mapped);
}

Status Arena::allocate(int64_t bytes) {
  if (map) ::munmap(map, mapped);
  map = nullptr, base = nullptr, size = 0;
  if (bytes < 0 || bytes > (int64_t(1) << 46))
    return runError(fmt::format("an arena of {} bytes is not possible", bytes));
  mapped = static_cast<size_t>(bytes) + hugePage; // room to begin at a huge page's border
  map = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) {
    map = nullptr;
    return runError(fmt::format("cannot allocate the device's arena of {} bytes: {}", bytes, std::strerror(errno)));
  }
  auto address = (reinterpret_cast<uintptr_t>(map) + hugePage - 1) & ~(hugePage - 1);
  base = reinterpret_cast<std::byte *>(address);
  size = bytes;
  if (static_cast<size_t>(bytes) >= hugePage) ::madvise(base, static_cast<size_t>(bytes), MADV_HUGEPAGE); // best effort
  return Status::ok();
}

} // namespace cleave::runtime
