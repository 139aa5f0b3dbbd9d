// One sharding spec of a node, checked: which part of a tensor each device has.
#pragma once
#include "compiler/annotations/device_axes.h"
#include "onnx/onnx_pb.h"
#include "runtime/base/status.h"
#include <string>
#include <vector>

namespace cleave::annotations {

// A dimension, or a factor of one that was several before a reshape.
struct ShardedPart {
  int64_t axis = 0;   // of the tensor; may count from the back
  int64_t size = 0;   // 0: not told
  int64_t shards = 1; // equal parts
};

struct TensorSpec {
  std::string node, tensor;
  std::vector<ShardedPart> parts;            // outermost first
  std::vector<std::vector<int64_t>> devices; // of each shard, row-major over `parts`

  // By place among `members`, the part of dimension `number` of `parts` that the device has. Empty: a member has none,
  // or several.
  Parts partsAlong(size_t number, const std::vector<int64_t> &members) const;
};

// Errors: `where` (the file and node) and what is wrong.
Result<TensorSpec> readSpec(const ::onnx::ShardingSpecProto &proto, const std::string &where, const std::string &node,
                            int64_t numDevices);

void writeSpec(const TensorSpec &spec, ::onnx::ShardingSpecProto &proto);

} // namespace cleave::annotations
