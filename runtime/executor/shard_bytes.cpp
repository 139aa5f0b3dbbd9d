#include "runtime/executor/shard_bytes.h"

namespace cleave::runtime {

ShardBytes::ShardBytes(Device &owner, int64_t offset, int64_t bytes, ShardAccess access,
                       std::function<void(const Status &)> failed)
    : offset(offset), failed(std::move(failed)) {
  if (std::byte *arena = owner.arena()) {
    view = {arena + offset, static_cast<size_t>(bytes)};
    return;
  }
  copy.resize(static_cast<size_t>(bytes));
  view = copy;
  if (access != ShardAccess::Replace)
    if (Status status = owner.read(offset, copy.data(), bytes); !status) this->failed(status);
  if (access != ShardAccess::Read) device = &owner;
}

ShardBytes::~ShardBytes() {
  if (!device || copy.empty()) return; // the CPU's, only read, or moved from
  if (Status status = device->write(offset, copy.data(), static_cast<int64_t>(copy.size())); !status) failed(status);
}

} // namespace cleave::runtime
