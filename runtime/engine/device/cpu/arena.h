// One zeroed, page-aligned allocation per device, with huge pages where the system gives them.
//   Arena arena; Status s = arena.allocate(program.arena_bytes()); arena.data() + buffer.offset()
#pragma once
#include "runtime/base/status.h"
#include <cstddef>
#include <cstdint>

namespace cleave::runtime {

class Arena {
public:
  Arena() = default;
  Arena(const Arena &) = delete;
  Arena &operator=(const Arena &) = delete;
  ~Arena();
  // Replaces what was allocated before. Error: the system refuses.
  Status allocate(int64_t bytes);
  std::byte *data() const { return base; }
  int64_t bytes() const { return size; }

private:
  std::byte *base = nullptr;
  int64_t size = 0;
  size_t mapped = 0;
  void *map = nullptr;
};

} // namespace cleave::runtime
