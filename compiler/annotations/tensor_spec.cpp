#include "compiler/annotations/tensor_spec.h"
#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <set>

namespace cleave::annotations {

Parts TensorSpec::partsAlong(size_t number, const std::vector<int64_t> &members) const {
  int64_t inner = 1;
  for (size_t i = number + 1; i < parts.size(); ++i) inner *= parts[i].shards;
  std::map<int64_t, int64_t> partOf;
  for (size_t shard = 0; shard < devices.size(); ++shard)
    for (int64_t device : devices[shard])
      if (!partOf.emplace(device, static_cast<int64_t>(shard) / inner % parts[number].shards).second) return {};
  Parts along;
  for (int64_t member : members) {
    auto found = partOf.find(member);
    if (found == partOf.end()) return {};
    along.push_back(found->second);
  }
  return along;
}

Result<TensorSpec> readSpec(const ::onnx::ShardingSpecProto &proto, const std::string &where, const std::string &node,
                            int64_t numDevices) {
  TensorSpec spec{.node = node, .tensor = proto.tensor_name(), .parts = {}, .devices = {}};
  const std::string at = fmt::format("{}: the sharding of '{}'", where, spec.tensor);
  int64_t shards = 1;
  for (const ::onnx::ShardedDimProto &dim : proto.sharded_dim()) {
    if (dim.simple_sharding_size() == 0)
      return inputError(fmt::format("{} does not say how axis {} is cut", at, dim.axis()));
    for (const ::onnx::SimpleShardedDimProto &simple : dim.simple_sharding()) {
      const int64_t size = simple.has_dim_value() ? simple.dim_value() : 0;
      if (simple.num_shards() < 1 || simple.num_shards() > numDevices)
        return inputError(fmt::format("{}: axis {} has {} shards", at, dim.axis(), simple.num_shards()));
      if (size % simple.num_shards() != 0)
        return inputError(fmt::format("{}: {} elements of axis {} make no {} equal shards", at, size, dim.axis(),
                                      simple.num_shards()));
      spec.parts.push_back({dim.axis(), size, simple.num_shards()});
      shards *= simple.num_shards();
    }
  }
  std::map<int64_t, std::vector<int64_t>> groups;
  for (const ::onnx::IntIntListEntryProto &entry : proto.index_to_device_group_map())
    groups[entry.key()] = {entry.value().begin(), entry.value().end()};
  if (proto.device_size() != shards)
    return inputError(
        fmt::format("{} has {} shards, and lists {} devices or groups of them", at, shards, proto.device_size()));
  for (int64_t entry : proto.device()) {
    auto group = groups.find(entry);
    spec.devices.push_back(group == groups.end() ? std::vector<int64_t>{entry} : group->second);
    for (int64_t device : spec.devices.back())
      if (device < 0 || device >= numDevices)
        return inputError(
            fmt::format("{} is on device {}; the configuration has devices 0 to {}", at, device, numDevices - 1));
  }
  return spec;
}

void writeSpec(const TensorSpec &spec, ::onnx::ShardingSpecProto &proto) {
  proto.set_tensor_name(spec.tensor);
  int64_t group = 0; // groups have negative names, which no device has
  for (const std::vector<int64_t> &devices : spec.devices) {
    proto.add_device(devices.size() == 1 ? devices[0] : --group);
    if (devices.size() == 1) continue;
    ::onnx::IntIntListEntryProto &entry = *proto.add_index_to_device_group_map();
    entry.set_key(group);
    entry.mutable_value()->Assign(devices.begin(), devices.end());
  }
  for (size_t i = 0; i < spec.parts.size(); ++i) {
    const ShardedPart &part = spec.parts[i];
    const bool isNew = i == 0 || spec.parts[i - 1].axis != part.axis;
    ::onnx::ShardedDimProto &dim =
        isNew ? *proto.add_sharded_dim() : *proto.mutable_sharded_dim(proto.sharded_dim_size() - 1);
    dim.set_axis(part.axis);
    ::onnx::SimpleShardedDimProto &simple = *dim.add_simple_sharding();
    if (part.size > 0) simple.set_dim_value(part.size);
    simple.set_num_shards(part.shards);
  }
}

} // namespace cleave::annotations
