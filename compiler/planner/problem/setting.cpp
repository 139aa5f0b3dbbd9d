#include "compiler/planner/problem/setting.h"
#include "compiler/tuning.h"
#include <array>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <ranges>

namespace cleave::planner {

int64_t Setting::axisSize(Axis axis) const {
  const bool isGrid = grid != TensorGrid::None;
  const int64_t depth = isGrid ? gridDepth : 1, side = isGrid ? gridSide : 1;
  // In the order of Axis.
  return std::array{pp, dp, fsdp, cp, ep, depth, side, isGrid ? side : tp}[size_t(axis)];
}

std::array<Axis, numAxes> Setting::allAxes() const {
  std::array<Axis, numAxes> all;
  auto at = all.begin();
  for (Axis axis : order) {
    if (axis == Axis::Tensor) *at++ = Axis::Depth, *at++ = Axis::Row;
    *at++ = axis;
  }
  return all;
}

int64_t Setting::chunksOf(const Problem &problem, const std::optional<int64_t> &asked) const {
  double largest = 0; // of products: what is compared with labels is not stored
  for (const Node &node : problem.nodes)
    for (int result : node.results)
      if (const Tensor &tensor = problem.tensors[size_t(result)]; tensor.chunked && node.kind.isHeavy())
        largest = std::max(largest, tensor.bytes());
  if (largest == 0 || pp > 1) return 1; // a pipeline's passes are functions of their own
  const double samples = localSamples(problem.batch);
  // A chunk has two rows at least.
  const int64_t most =
      problem.chunksSamples ? std::max<int64_t>(1, int64_t(samples / 2)) : std::numeric_limits<int64_t>::max();
  if (asked) return std::min(*asked, most);
  const auto least = int64_t(std::ceil(largest / double(problem.samples) * samples / double(cp) / tuning::chunkBytes));
  // Parts of whole samples are as large as each other.
  for (int64_t chunks = least; chunks < 2 * least; ++chunks)
    if (std::fmod(samples, double(chunks)) == 0) return std::min(chunks, most);
  return std::clamp<int64_t>(least, 1, most);
}

int64_t Setting::stride(Axis axis) const {
  int64_t stride = 1;
  for (Axis inner : std::views::reverse(allAxes())) {
    if (inner == axis) break;
    stride *= axisSize(inner);
  }
  return stride;
}

GroupShape Setting::group(const Cluster &cluster, AxisSet axes) const {
  std::array<AxisPlace, numAxes> places;
  size_t count = 0;
  int64_t stride = 1;
  for (Axis axis : std::views::reverse(allAxes())) {
    const int64_t size = axisSize(axis);
    if (contains(axes, axis) && size > 1) places[count++] = {size, stride};
    stride *= size;
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

std::string Setting::nameOf(Axis axis) const {
  return axis == Axis::Tensor && grid != TensorGrid::None ? "tp_col" : name(axis);
}

dist::Mesh Setting::mesh() const {
  dist::Mesh mesh;
  for (Axis axis : allAxes())
    if (axisSize(axis) > 1 || axis == Axis::Data || axis == Axis::Tensor)
      mesh.axes.push_back({nameOf(axis), axisSize(axis)});
  return mesh;
}

dist::Axes Setting::batchAxes() const {
  dist::Axes axes;
  for (Axis axis : {Axis::Data, Axis::Shards, Axis::Depth, Axis::Row})
    if (contains(batchSet(), axis) && axisSize(axis) > 1) axes.push_back(nameOf(axis));
  return axes;
}

dist::Axes Setting::zeroAxes() const {
  dist::Axes axes;
  for (Axis axis : allAxes())
    if (contains(zeroSet(), axis)) axes.push_back(nameOf(axis));
  return axes;
}

dist::Axes Setting::namesOf(AxisSet axes) const {
  dist::Axes names;
  for (Axis axis : allAxes())
    if (contains(axes, axis) && axisSize(axis) > 1) names.push_back(nameOf(axis));
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
