#include "compiler/partition/layouts.h"
#include <algorithm>

using namespace mlir;
using namespace cleave::dist;

namespace cleave::partition {

ArrayAttr axesAttribute(MLIRContext *context, const Axes &axes) {
  SmallVector<Attribute> names;
  for (const std::string &axis : axes) names.push_back(StringAttr::get(context, axis));
  return ArrayAttr::get(context, names);
}

Axes axesOf(Attribute attribute) {
  Axes axes;
  if (auto array = dyn_cast_or_null<ArrayAttr>(attribute))
    for (auto name : array.getAsRange<StringAttr>()) axes.push_back(name.str());
  return axes;
}

std::optional<FactorSharding> factorsOf(Operation *op) {
  FactorsAttr factors = dist::factorsAttr.of(op);
  return factors ? std::optional(factors.getFactors()) : std::nullopt;
}

FailureOr<Mesh> meshOf(ModuleOp module) {
  MeshAttr mesh = dist::meshAttr.of(module);
  if (!mesh) return module.emitError("has no attribute '") << dist::meshAttr.name() << "': run apply-decision first";
  return mesh.getMesh();
}

SmallVector<int64_t> shapeOf(Value value) {
  return SmallVector<int64_t>(cast<RankedTensorType>(value.getType()).getShape());
}

bool contains(const Axes &axes, const std::string &axis) {
  return std::find(axes.begin(), axes.end(), axis) != axes.end();
}

Sharding fitted(const Mesh &mesh, Sharding layout, ArrayRef<int64_t> shape) {
  layout.dims.resize(shape.size());
  Axes seen = layout.partial;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    Axes kept;
    for (const std::string &axis : layout.dims[dim]) {
      if (contains(seen, axis) || shape[dim] % (mesh.groupSize(kept) * mesh.axisSize(axis)) != 0) break;
      if (mesh.axisSize(axis) > 1) kept.push_back(axis);
      seen.push_back(axis);
    }
    layout.dims[dim] = std::move(kept);
  }
  return layout;
}

FactorSharding fitted(const Mesh &mesh, const FactorRule &rule, FactorSharding split) {
  split.resize(rule.factors.size());
  Axes seen;
  for (size_t factor = 0; factor < split.size(); ++factor) {
    Axes kept;
    for (const std::string &axis : split[factor]) {
      Axes longer = kept;
      longer.push_back(axis);
      if (contains(seen, axis) || !canSplit(mesh, rule, static_cast<int64_t>(factor), longer)) break;
      if (mesh.axisSize(axis) > 1) kept = std::move(longer);
      seen.push_back(axis);
    }
    split[factor] = std::move(kept);
  }
  return split;
}

Sharding without(Sharding layout, const Axes &axes) {
  auto drop = [&](Axes &from) {
    from.erase(std::remove_if(from.begin(), from.end(), [&](const std::string &axis) { return contains(axes, axis); }),
               from.end());
  };
  for (Axes &dim : layout.dims) drop(dim);
  drop(layout.partial);
  return layout;
}

Axes inMeshOrder(const Mesh &mesh, Axes axes) {
  Axes ordered;
  for (const MeshAxis &axis : mesh.axes)
    if (contains(axes, axis.name)) ordered.push_back(axis.name);
  return ordered;
}

double localBytes(const Mesh &mesh, Type type, const Sharding &layout) {
  double bytes = bytesOf(type);
  for (const Axes &axes : layout.dims) bytes /= static_cast<double>(mesh.groupSize(axes));
  return bytes;
}

double reshardBytes(const Mesh &mesh, Type type, const Sharding &from, const Sharding &to) {
  double bytes = localBytes(mesh, type, from), total = 0;
  for (const ReshardStep &step : reshard(mesh, from, to)) {
    total += trafficBytes(mesh, step, bytes);
    bytes = bytesAfter(mesh, step, bytes);
  }
  return total;
}

Sharding homeOf(const Mesh &mesh, onnx::ParamOp param) {
  auto shape = cast<RankedTensorType>(param.getType()).getShape();
  auto attribute = dyn_cast_or_null<ShardingAttr>(param.getShardingAttr());
  return attribute ? fitted(mesh, attribute.getSharding(), shape) : Sharding::replicated(shape.size());
}

} // namespace cleave::partition
