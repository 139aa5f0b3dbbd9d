// Messages of one ordered pair of devices that are in flight: a ring of buffers between one producer thread and one
// consumer thread, allocated once. The producer waits only when all buffers are full, the consumer when all are empty.
//
//   MessageRing ring(4096, 2, abort);
//   std::byte *out = ring.claim();  memcpy(out, data, bytes);  ring.publish(bytes);   // producer
//   std::byte *in = ring.take(bytes);  memcpy(data, in, bytes);  ring.release();      // consumer
#pragma once
#include "runtime/base/threads/wait.h"
#include "runtime/engine/device/device.h"
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace cleave::runtime {

class MessageRing {
public:
  MessageRing(int64_t bytes, int buffers, const AbortFlag &abort)
      : stride((bytes + 63) / 64 * 64), lengths(static_cast<size_t>(buffers)),
        memory(std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(stride) * lengths.size())),
        abort(abort) {}

  // The next free buffer, of `bytes`. Null: the run was aborted.
  std::byte *claim() {
    for (uint32_t seen;
         sent.load(std::memory_order_relaxed) - (seen = taken.load(std::memory_order_acquire)) == count();)
      if (!waitWhile(taken, seen, abort)) return nullptr;
    return at(next);
  }
  // Without waiting; `ahead`: claimed before, and not published yet. Null: none is free.
  std::byte *tryClaim(size_t ahead = 0) {
    const uint32_t used = sent.load(std::memory_order_relaxed) - taken.load(std::memory_order_acquire);
    return used + ahead >= count() ? nullptr : at((next + ahead) % lengths.size());
  }
  void publish(int64_t bytes) {
    lengths[next] = bytes;
    next = (next + 1) % lengths.size();
    sent.fetch_add(1, std::memory_order_release);
    wakeAll(sent);
    if (onPublish) onPublish();
  }

  // The oldest message. Null: the run was aborted.
  const std::byte *take(int64_t &bytes) {
    uint32_t number = taken.load(std::memory_order_relaxed);
    for (uint32_t seen; (seen = sent.load(std::memory_order_acquire)) == number;)
      if (!waitWhile(sent, seen, abort)) return nullptr;
    return tryTake(bytes);
  }
  // Without waiting; `ahead`: taken before, and not released yet. Null: there is none.
  std::byte *tryTake(int64_t &bytes, size_t ahead = 0) {
    if (sent.load(std::memory_order_acquire) - taken.load(std::memory_order_relaxed) <= ahead) return nullptr;
    const size_t place = (oldest + ahead) % lengths.size();
    bytes = lengths[place];
    return at(place);
  }
  void release() {
    oldest = (oldest + 1) % lengths.size();
    taken.fetch_add(1, std::memory_order_release);
    wakeAll(taken);
    if (onRelease) onRelease();
  }

  bool empty() const { return sent.load(std::memory_order_acquire) == taken.load(std::memory_order_acquire); }
  uint32_t buffers() const { return count(); }
  int64_t bytesOfBuffer() const { return stride; }
  int64_t allocatedBytes() const { return stride * static_cast<int64_t>(lengths.size()); }

  // Told on the thread that publishes, and on the one that releases.
  std::function<void()> onPublish, onRelease;

private:
  uint32_t count() const { return static_cast<uint32_t>(lengths.size()); }
  std::byte *at(size_t place) { return memory.get() + place * static_cast<size_t>(stride); }

  const int64_t stride;
  std::vector<int64_t> lengths;
  std::unique_ptr<std::byte[]> memory;
  const AbortFlag &abort;
  alignas(64) std::atomic<uint32_t> sent{0}; // counts, which may wrap
  size_t next = 0;                           // the producer's place
  alignas(64) std::atomic<uint32_t> taken{0};
  size_t oldest = 0; // the consumer's place
};

// The command that sends `data` on the ring, or receives it from there; in several messages where a buffer is smaller.
Prepared prepareMessage(MessageRing &ring, std::byte *data, int64_t bytes, bool receives);

} // namespace cleave::runtime
