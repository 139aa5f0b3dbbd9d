#include "runtime/comm/message_ring.h"
#include "runtime/device/parallel.h"
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
    std::byte *buffer = ring.claim();
    if (!buffer) return runError("the run was aborted");
    copyBytes(buffer, data, bytes);
    ring.publish(bytes);
    return Status::ok();
  }
  int64_t sentBytes() const override { return bytes; }

private:
  MessageRing &ring;
  const std::byte *data;
  int64_t bytes;
};

class Receive final : public PreparedCommand {
public:
  Receive(MessageRing &ring, std::byte *data, int64_t bytes) : ring(ring), data(data), bytes(bytes) {}
  Status run() override {
    int64_t arrived = 0;
    const std::byte *buffer = ring.take(arrived);
    if (!buffer) return runError("the run was aborted");
    if (arrived != bytes) return runError(fmt::format("a message of {} bytes where {} are expected", arrived, bytes));
    copyBytes(data, buffer, bytes);
    ring.release();
    return Status::ok();
  }

private:
  MessageRing &ring;
  std::byte *data;
  int64_t bytes;
};

} // namespace

Prepared prepareMessage(MessageRing &ring, std::byte *data, int64_t bytes, bool receives) {
  if (receives) return std::make_unique<Receive>(ring, data, bytes);
  return std::make_unique<Send>(ring, data, bytes);
}

} // namespace cleave::runtime
