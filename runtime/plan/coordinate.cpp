#include "runtime/plan/coordinate.h"
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace cleave::runtime {

Result<dist::Mesh> meshOf(const plan::Mesh &mesh) {
  dist::Mesh out;
  std::set<std::string> names;
  int64_t devices = 1;
  for (const plan::MeshAxis &axis : mesh.axes()) {
    if (!names.insert(axis.name()).second) return inputError(fmt::format("mesh axis '{}' appears twice", axis.name()));
    if (axis.size() < 1 || axis.size() > (1 << 20) || (devices *= axis.size()) > (1 << 20))
      return inputError(fmt::format("mesh axis '{}' has size {}", axis.name(), axis.size()));
    out.axes.push_back({axis.name(), axis.size()});
  }
  return out;
}

int64_t evaluate(const plan::AffineOfCoordinate &affine, const dist::Mesh &mesh, int64_t device) {
  int64_t value = affine.base();
  for (const auto &term : affine.terms()) value += term.stride() * mesh.indexAlong(device, axesOf(term.axes()));
  return value;
}

Result<std::vector<int64_t>> factorsOf(const plan::AffineOfCoordinate &affine, const dist::Mesh &mesh) {
  constexpr __int128 limit = INT64_MAX / 2;
  std::vector<__int128> factors(mesh.axes.size(), 0);
  for (const auto &term : affine.terms()) {
    __int128 weight = term.stride();
    for (int i = term.axes_size() - 1; i >= 0; --i) {
      size_t at = 0;
      while (at < mesh.axes.size() && mesh.axes[at].name != term.axes(i)) ++at;
      if (at == mesh.axes.size()) return inputError(fmt::format("unknown mesh axis '{}'", term.axes(i)));
      factors[at] += weight;
      weight *= mesh.axes[at].size;
      if (weight > limit || weight < -limit || factors[at] > limit || factors[at] < -limit)
        return inputError("affine index overflows");
    }
  }
  return std::vector<int64_t>(factors.begin(), factors.end());
}

// The index along a group is itself a sum over axes, so every axis has one factor and the extremes separate.
Result<std::pair<int64_t, int64_t>> rangeOf(const plan::AffineOfCoordinate &affine, const dist::Mesh &mesh) {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<int64_t> factors, factorsOf(affine, mesh));
  __int128 low = affine.base(), high = low;
  for (size_t at = 0; at < mesh.axes.size(); ++at) {
    __int128 reach = static_cast<__int128>(factors[at]) * (mesh.axes[at].size - 1);
    (reach < 0 ? low : high) += reach;
  }
  if (low < INT64_MIN / 2 || high > INT64_MAX / 2) return inputError("affine index overflows");
  return std::pair<int64_t, int64_t>{static_cast<int64_t>(low), static_cast<int64_t>(high)};
}

Result<Shard> shardOf(const google::protobuf::RepeatedField<int64_t> &shape,
                      const google::protobuf::RepeatedPtrField<plan::DimSharding> &dims, const dist::Mesh &mesh,
                      int64_t device) {
  Shard shard{std::vector<int64_t>(shape.size(), 0), {shape.begin(), shape.end()}};
  if (dims.empty()) return shard; // whole
  if (dims.size() != shape.size())
    return inputError(fmt::format("a sharding of {} dimensions for a shape of {}", dims.size(), shape.size()));
  std::set<std::string> used;
  for (int d = 0; d < dims.size(); ++d) {
    for (const std::string &axis : dims[d].axes()) {
      bool known = false;
      for (const dist::MeshAxis &entry : mesh.axes) known |= entry.name == axis;
      if (!known) return inputError(fmt::format("unknown mesh axis '{}'", axis));
      if (!used.insert(axis).second) return inputError(fmt::format("mesh axis '{}' splits one tensor twice", axis));
    }
    dist::Axes axes = axesOf(dims[d].axes());
    int64_t parts = mesh.groupSize(axes);
    if (shape[d] % parts != 0)
      return inputError(fmt::format("dimension {} of size {} does not divide over {} ({})", d, shape[d],
                                    fmt::join(axes, ","), parts));
    shard.size[d] = shape[d] / parts;
    shard.begin[d] = mesh.indexAlong(device, axes) * shard.size[d];
  }
  return shard;
}

const google::protobuf::RepeatedField<int64_t> &paddedShape(const plan::Parameter &parameter) {
  return parameter.padded_shape().empty() ? parameter.shape() : parameter.padded_shape();
}

Result<std::vector<int64_t>> blockOf(const plan::Parameter &parameter, const dist::Mesh &mesh) {
  CLEAVE_ASSIGN_OR_RETURN(Shard block, shardOf(paddedShape(parameter), parameter.dims(), mesh, 0));
  return block.size;
}

int64_t blockBytes(const plan::Parameter &parameter, const dist::Mesh &mesh) {
  return elementCount(*blockOf(parameter, mesh)) * byteSize(parameter.dtype());
}

Result<Shard> shardOf(const plan::Parameter &parameter, const dist::Mesh &mesh, int64_t device) {
  CLEAVE_ASSIGN_OR_RETURN(Shard shard, shardOf(paddedShape(parameter), parameter.dims(), mesh, device));
  if (shard.size.size() != size_t(parameter.shape_size()))
    return inputError("its padded shape has another number of dimensions");
  for (size_t d = 0; d < shard.size.size(); ++d) {
    const int64_t stored = parameter.shape(int(d));
    if (paddedShape(parameter)[int(d)] < stored) return inputError("its padded shape is smaller than its own");
    shard.begin[d] = std::min(shard.begin[d], stored);
    shard.size[d] = std::min(shard.size[d], stored - shard.begin[d]);
  }
  return shard;
}

} // namespace cleave::runtime
