// The bytes of a device's shard as the host sees them: where they are on the CPU or in the host's memory; a copy on a
// GPU, which is read when the object is made and written back when it goes, as far as the access says.
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

class ShardBytes {
public:
  ShardBytes() = default;
  // `failed` is told when the bytes do not get there.
  ShardBytes(Device &device, int64_t place, int64_t bytes, ShardAccess access,
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
  std::span<std::byte> view;
  std::vector<std::byte> copy; // of a GPU's memory
  Device *device = nullptr;    // to write it back to
  int64_t place = 0;
  std::function<void(const Status &)> failed;
};

} // namespace cleave::runtime
