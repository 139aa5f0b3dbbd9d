#include "runtime/engine/executor/shard_bytes.h"
#include "runtime/plan/routine.h"

namespace cleave::runtime {

ShardBytes::ShardBytes(Device &owner, int64_t place, int64_t bytes, ShardAccess access,
                       std::function<void(const Status &)> failed)
    : place(place), failed(std::move(failed)) {
  bool onHost = place >= hostMemory;
  if (std::byte *base = onHost ? owner.host() : owner.arena()) {
    view = {base + (onHost ? place - hostMemory : place), static_cast<size_t>(bytes)};
    return;
  }
  copy.resize(static_cast<size_t>(bytes));
  view = copy;
  if (access != ShardAccess::Replace)
    if (Status status = owner.read(place, copy.data(), bytes); !status) this->failed(status);
  if (access != ShardAccess::Read) device = &owner;
}

ShardBytes::~ShardBytes() {
  if (!device || copy.empty()) return; // the CPU's, only read, or moved from
  if (Status status = device->write(place, copy.data(), static_cast<int64_t>(copy.size())); !status) failed(status);
}

} // namespace cleave::runtime
