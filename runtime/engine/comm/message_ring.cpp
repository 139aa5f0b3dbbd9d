#include "runtime/engine/comm/message_ring.h"
#include "runtime/base/threads/parallel.h"
#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace cleave::runtime {
namespace {

constexpr int64_t copyGrain = 1 << 18; // bytes a thread copies at least

void copyBytes(std::byte *to, const std::byte *from, int64_t bytes) {
  parallelFor(bytes, copyGrain, [&](int64_t begin, int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin));
  });
}

class Send final : public PreparedCommand {
public:
  Send(MessageRing &ring, const std::byte *data, int64_t bytes) : ring(ring), data(data), bytes(bytes) {}
  Status run() override {
    for (;;) {
      Result<bool> isDone = issue();
      if (!isDone || *isDone) return isDone.status();
      if (!ring.claim()) return runError("the run was aborted");
    }
  }
  Result<bool> issue() override {
    while (done < bytes) {
      std::byte *buffer = ring.tryClaim();
      if (!buffer) return false;
      fill(buffer);
    }
    done = 0;
    return true;
  }

private:
  void fill(std::byte *buffer) {
    int64_t piece = std::min(bytes - done, ring.bytesOfBuffer());
    copyBytes(buffer, data + done, piece);
    ring.publish(piece);
    done += piece;
  }

  MessageRing &ring;
  const std::byte *data;
  int64_t bytes, done = 0;
};

class Receive final : public PreparedCommand {
public:
  Receive(MessageRing &ring, std::byte *data, int64_t bytes) : ring(ring), data(data), bytes(bytes) {}
  Status run() override {
    for (int64_t arrived = 0;;) {
      Result<bool> isDone = issue();
      if (!isDone || *isDone) return isDone.status();
      if (!ring.take(arrived)) return runError("the run was aborted");
    }
  }
  Result<bool> issue() override {
    while (done < bytes) {
      int64_t arrived = 0;
      const std::byte *buffer = ring.tryTake(arrived);
      if (!buffer) return false;
      CLEAVE_RETURN_IF_ERROR(empty(buffer, arrived));
    }
    done = 0;
    return true;
  }

private:
  Status empty(const std::byte *buffer, int64_t arrived) {
    int64_t piece = std::min(bytes - done, ring.bytesOfBuffer());
    if (arrived != piece) return runError(fmt::format("a message of {} bytes where {} are expected", arrived, piece));
    copyBytes(data + done, buffer, piece);
    ring.release();
    done += piece;
    return Status::ok();
  }

  MessageRing &ring;
  std::byte *data;
  int64_t bytes, done = 0;
};

} // namespace

Prepared prepareMessage(MessageRing &ring, std::byte *data, int64_t bytes, bool receives) {
  if (receives) return std::make_unique<Receive>(ring, data, bytes);
  return std::make_unique<Send>(ring, data, bytes);
}

} // namespace cleave::runtime
