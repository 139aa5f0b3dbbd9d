#include "runtime/engine/executor/shard_bytes.h"
#include "runtime/base/boxes.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include <cstring>

namespace cleave::runtime {
namespace {

// In this process' memory; null on a GPU.
std::byte *addressOf(Device &device, int64_t place) {
  const bool onHost = place >= hostMemory;
  std::byte *base = onHost ? device.host() : device.arena();
  return base ? base + (onHost ? place - hostMemory : place) : nullptr;
}

} // namespace

ShardBytes::ShardBytes(Device &owner, int64_t place, ShardLayout of, ShardAccess access,
                       std::function<void(const Status &)> failed)
    : layout(std::move(of)), place(place), failed(std::move(failed)) {
  const auto bytes = static_cast<size_t>(elementCount(layout.size) * layout.elementBytes);
  std::byte *memory = addressOf(owner, place);
  if (memory && !isPadded()) {
    view = {memory, bytes};
    return;
  }
  copy.resize(static_cast<size_t>(elementCount(layout.block) * layout.elementBytes));
  if (access != ShardAccess::Replace) {
    if (memory)
      std::memcpy(copy.data(), memory, copy.size());
    else if (Status status = owner.read(place, copy.data(), static_cast<int64_t>(copy.size())); !status)
      this->failed(status);
    if (isPadded()) { // the box moves to the front
      std::vector<std::byte> block = copy;
      copyBox(layout.size, {layout.block}, block.data(), {layout.size}, copy.data(), layout.elementBytes);
    }
  }
  view = {copy.data(), bytes};
  if (access != ShardAccess::Read) device = &owner;
}

ShardBytes::~ShardBytes() {
  if (!device || copy.empty()) return; // the CPU's, only read, or moved from
  if (isPadded()) {
    std::vector<std::byte> block(copy.size()); // padding is zero
    copyBox(layout.size, {layout.size}, copy.data(), {layout.block}, block.data(), layout.elementBytes);
    copy = std::move(block);
  }
  if (std::byte *memory = addressOf(*device, place))
    std::memcpy(memory, copy.data(), copy.size());
  else if (Status status = device->write(place, copy.data(), static_cast<int64_t>(copy.size())); !status)
    failed(status);
}

} // namespace cleave::runtime
