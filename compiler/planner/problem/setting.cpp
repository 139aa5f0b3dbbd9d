#include "compiler/planner/problem/setting.h"
#include <array>
#include <fmt/format.h>

namespace cleave::planner {

int64_t Setting::axisSize(Axis axis) const {
  const bool isGrid = grid != TensorGrid::None;
  switch (axis) {
  case Axis::Pipeline:
    return pp;
  case Axis::Data:
    return dp;
  case Axis::Shards:
    return fsdp;
  case Axis::Sequence:
    return cp;
  case Axis::Experts:
    return ep;
  case Axis::Depth:
    return isGrid ? gridDepth : 1;
  case Axis::Row:
    return isGrid ? gridSide : 1;
  case Axis::Tensor:
    return isGrid ? gridSide : tp;
  }
  return 1;
}

int64_t Setting::stride(Axis axis) const {
  int64_t stride = 1;
  for (size_t i = order.size(); i-- > 0;) {
    if (order[i] == axis) return stride;
    stride *= axisSize(order[i]);
    if (order[i] != Axis::Tensor) continue;
    for (Axis outer : {Axis::Row, Axis::Depth}) {
      if (outer == axis) return stride;
      stride *= axisSize(outer);
    }
  }
  return stride;
}

GroupShape Setting::group(const Cluster &cluster, AxisSet axes) const {
  std::array<AxisPlace, numAxes> places;
  size_t count = 0;
  int64_t stride = 1;
  auto add = [&](Axis axis) {
    const int64_t size = axisSize(axis);
    if (contains(axes, axis) && size > 1) places[count++] = {size, stride};
    stride *= size;
  };
  for (size_t i = order.size(); i-- > 0;) {
    add(order[i]);
    if (order[i] != Axis::Tensor) continue;
    add(Axis::Row);
    add(Axis::Depth);
  }
  return groupAlong(cluster, {places.data(), count}, cluster.numDevices());
}

AxisSet Setting::batchSet() const {
  if (!batchDivides) return 0;
  const AxisSet set = setOf({Axis::Data, Axis::Shards, Axis::Depth});
  return grid == TensorGrid::Plane ? AxisSet(set | setOf({Axis::Row})) : set;
}

AxisSet Setting::zeroSet() const {
  if (grid == TensorGrid::Plane) return setOf({Axis::Row});
  if (grid == TensorGrid::Cube) return setOf({Axis::Depth});
  return setOf({fsdp > 1 ? Axis::Shards : Axis::Data});
}

Tier Setting::tierBetweenRanks(const Cluster &cluster, int from, int to) const {
  return tierAlong(cluster, {pp, stride(Axis::Pipeline)}, from, to);
}

dist::Mesh Setting::mesh() const {
  dist::Mesh mesh;
  auto add = [&](const char *name, Axis axis, bool always = false) {
    if (axisSize(axis) > 1 || always) mesh.axes.push_back({name, axisSize(axis)});
  };
  for (Axis axis : order)
    if (axis != Axis::Tensor) {
      add(name(axis), axis, axis == Axis::Data);
    } else {
      add(name(Axis::Depth), Axis::Depth);
      add(name(Axis::Row), Axis::Row);
      add(grid == TensorGrid::None ? "tp" : "tp_col", Axis::Tensor, true);
    }
  return mesh;
}

dist::Axes Setting::batchAxes() const {
  if (!batchDivides) return {};
  dist::Axes axes;
  if (dp > 1) axes.push_back("dp");
  if (fsdp > 1) axes.push_back("fsdp");
  if (gridDepth > 1) axes.push_back("tp_depth");
  if (grid == TensorGrid::Plane) axes.push_back("tp_row");
  return axes;
}

dist::Axes Setting::zeroAxes() const {
  if (grid == TensorGrid::Plane) return {"tp_row"};
  if (grid == TensorGrid::Cube) return {"tp_depth"};
  return {fsdp > 1 ? "fsdp" : "dp"};
}

dist::Axes Setting::namesOf(AxisSet axes) const {
  dist::Axes names;
  for (const dist::MeshAxis &axis : mesh().axes)
    if (axis.size > 1 && (setOfNames({axis.name}) & axes)) names.push_back(axis.name);
  return names;
}

std::vector<LaidAxis> Setting::laidAxes() const {
  std::vector<LaidAxis> axes;
  if (ep > 1) axes.push_back({"ep", ep, {}});
  if (grid == TensorGrid::Cube) axes.push_back({"tp_row", gridSide, {}});
  if (grid != TensorGrid::None) axes.push_back({"tp_col", gridSide, {}});
  return axes;
}

std::string Setting::str() const {
  return fmt::format("{} zero {} microbatches {} recompute {}{}", mesh().str(), zero, microbatches, name(recompute),
                     pp > 1 ? " schedule " + schedule : "") +
         (offload != Offload::None ? fmt::format(" offload {}", name(offload)) : "");
}

} // namespace cleave::planner
