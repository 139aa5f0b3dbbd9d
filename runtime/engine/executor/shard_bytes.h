// The bytes of a device's shard as the host sees them, without padding: where they are on the CPU or in the host's
// memory; a copy on a GPU and where the block is padded, which is read when the object is made and written back when it
// goes, as far as the access says.
//
//   fill(executor.shard(0, parameter, ShardAccess::Replace));          // written back at the end of the statement
//   ShardBytes bytes = executor.shard(0, parameter, ShardAccess::Read);
#pragma once
#include "runtime/engine/device/device.h"
#include <functional>
#include <span>
#include <vector>

namespace cleave::runtime {

enum class ShardAccess { Read, Replace, Change };

// A block in a device's memory, and what of it is no padding: a box at its beginning.
struct ShardLayout {
  std::vector<int64_t> block, size;
  int64_t elementBytes = 1;
};

class ShardBytes {
public:
  ShardBytes() = default;
  // `failed` is told when the bytes do not get there.
  ShardBytes(Device &device, int64_t place, ShardLayout layout, ShardAccess access,
             std::function<void(const Status &)> failed);
  ShardBytes(ShardBytes &&) = default;
  ~ShardBytes();
  std::byte *data() const { return view.data(); }
  size_t size() const { return view.size(); }
  auto begin() const { return view.begin(); }
  auto end() const { return view.end(); }
  operator std::span<std::byte>() const { return view; }
  operator std::span<const std::byte>() const { return view; }

private:
  bool isPadded() const { return layout.block != layout.size; }
  std::span<std::byte> view;
  ShardLayout layout;
  std::vector<std::byte> copy; // of a GPU's memory, or of a padded block
  Device *device = nullptr;    // to write it back to
  int64_t place = 0;
  std::function<void(const Status &)> failed;
};

} // namespace cleave::runtime
