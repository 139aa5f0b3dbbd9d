#include "runtime/check/reference/buffer.h"
#include "runtime/base/threads/parallel.h"
#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <new>

namespace cleave::runtime {
namespace {

// Smaller buffers are the allocator's, which does not give their pages back. Halved or doubled, it changes nothing.
constexpr size_t minReusedBytes = size_t(1) << 20;
constexpr std::align_val_t alignment{64};
constexpr int64_t bytesAtATime = 1 << 17; // that one thread copies

class FreeList {
public:
  std::byte *take(size_t bytes) {
    const std::lock_guard lock(mutex);
    used += bytes;
    maxUsed = std::max(maxUsed, used);
    if (auto known = kept.find(bytes); known != kept.end()) {
      std::byte *memory = known->second;
      forget(known);
      return memory;
    }
    trim(maxUsed);
    return make(bytes);
  }
  void give(std::byte *memory, size_t bytes) {
    const std::lock_guard lock(mutex);
    used -= bytes;
    if (users == 0) return ::operator delete(memory, alignment);
    kept.emplace(bytes, memory);
    keptBytes += bytes;
  }
  void addUser(int count) {
    const std::lock_guard lock(mutex);
    users += count;
    if (users == 0) trim(0);
    if (users == 0) maxUsed = used;
  }
  size_t bytesKept() {
    const std::lock_guard lock(mutex);
    return keptBytes;
  }
  static std::byte *make(size_t bytes) { return static_cast<std::byte *>(::operator new(bytes, alignment)); }

private:
  void trim(size_t limit) { // of what is used and kept
    while (!kept.empty() && used + keptBytes > limit) {
      ::operator delete(kept.begin()->second, alignment);
      forget(kept.begin());
    }
  }
  void forget(std::multimap<size_t, std::byte *>::iterator at) {
    keptBytes -= at->first;
    kept.erase(at);
  }

  std::mutex mutex;
  int users = 0;
  size_t used = 0, maxUsed = 0, keptBytes = 0;
  std::multimap<size_t, std::byte *> kept; // by size
};

FreeList &freeList() {
  static auto *list = new FreeList; // outlives every static buffer
  return *list;
}

} // namespace

Buffer::Buffer(size_t bytes) : bytes(bytes) {
  if (bytes > 0) memory = bytes < minReusedBytes ? FreeList::make(bytes) : freeList().take(bytes);
}
Buffer::Buffer(const Buffer &other) : Buffer(other.bytes) {
  parallelFor(static_cast<int64_t>(bytes), bytesAtATime, [&](int64_t begin, int64_t end) {
    std::memcpy(memory + begin, other.memory + begin, static_cast<size_t>(end - begin));
  });
}
Buffer::~Buffer() {
  if (!memory) return;
  if (bytes < minReusedBytes)
    ::operator delete(memory, alignment);
  else
    freeList().give(memory, bytes);
}
bool Buffer::operator==(const Buffer &other) const {
  return bytes == other.bytes && (bytes == 0 || std::memcmp(memory, other.memory, bytes) == 0);
}

ReusedBuffers::ReusedBuffers() { freeList().addUser(1); }
ReusedBuffers::~ReusedBuffers() { freeList().addUser(-1); }
size_t ReusedBuffers::keptBytes() { return freeList().bytesKept(); }

} // namespace cleave::runtime
