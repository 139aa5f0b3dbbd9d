#include "compiler/planner/problem/mesh_order.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/planner/problem/setting.h"
#include "compiler/planner/problem/text_reader.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::planner {
namespace {

// In a mesh; Tensor's second is a grid's.
constexpr std::pair<const char *, Axis> names[] = {
    {"pp", Axis::Pipeline}, {"dp", Axis::Data},        {"fsdp", Axis::Shards},
    {"cp", Axis::Sequence}, {"ep", Axis::Experts},     {"tp", Axis::Tensor},
    {"tp_row", Axis::Row},  {"tp_depth", Axis::Depth}, {"tp_col", Axis::Tensor}};

// Then a group is the faster, the more of its ranks share a node; so it is with switches (parseClusterYaml).
bool isNodeFaster(const Cluster &cluster) {
  return cluster.node.latency <= cluster.network.latency &&
         cluster.node.bandwidth >= cluster.network.bandwidth * constants::networkEfficiency;
}

// Has one rank in a node more of the network than so many together?
bool isBetterAlone(const Cluster &cluster, int64_t perNode) {
  return crossesCards(cluster, perNode) && double(perNode) * constants::acrossCards < 1;
}

} // namespace

const char *name(Axis axis) {
  return std::ranges::find(names, axis, &std::pair<const char *, Axis>::second)->first; // it has all
}

AxisSet setOfNames(const dist::Axes &axes) {
  AxisSet set = 0;
  for (auto [name, axis] : names)
    if (std::ranges::find(axes, name) != axes.end()) set = AxisSet(set | setOf({axis}));
  return set;
}

Result<std::vector<Axis>> parseAxisOrder(const std::string &text) {
  std::vector<Axis> order;
  for (const std::string &entry : splitAt(text, ',')) {
    auto wrong = [&](const std::string &what) {
      return Status{ErrorKind::Usage, fmt::format("--mesh-order {}: {}; it lists axes from the outermost to the "
                                                  "innermost, such as pp,dp,tp (also fsdp, cp, ep)",
                                                  text, what)};
    };
    const auto *found = std::ranges::find_if(usualOrder, [&](Axis axis) { return entry == name(axis); });
    if (found == usualOrder.end()) return wrong(fmt::format("no axis '{}'", entry));
    if (std::ranges::find(order, *found) != order.end()) return wrong(fmt::format("axis '{}' twice", entry));
    order.push_back(*found);
  }
  return order;
}

AxisOrder orderOf(const dist::Mesh &mesh) {
  auto at = [&](Axis axis) {
    auto isIt = [&](const dist::MeshAxis &other) {
      return other.name == name(axis) || (axis == Axis::Tensor && other.name == "tp_col");
    };
    auto found = std::ranges::find_if(mesh.axes, isIt);
    return found == mesh.axes.end() ? -1 : found - mesh.axes.begin();
  };
  AxisOrder order = usualOrder;
  std::ranges::stable_sort(order, {}, at);
  return order;
}

Placement placementOf(const Cluster &cluster, const Setting &setting) {
  Placement placement = {};
  std::array<int64_t, numAxes> strides = {};
  bool areAligned = true;
  for (size_t a = 0; a < numAxes; ++a) {
    placement[a] = setting.group(cluster, setOf({Axis(a)}));
    if (setting.axisSize(Axis(a)) == 1) continue;
    strides[a] = setting.stride(Axis(a));
    areAligned = areAligned && isAligned(cluster, {setting.axisSize(Axis(a)), strides[a]});
  }
  if (!areAligned) placement.strides = strides;
  return placement;
}

Placement microbatchPlacement(const Cluster &cluster, const Setting &setting) {
  Placement placement = placementOf(cluster, setting);
  for (Axis axis : {Axis::Pipeline, Axis::Data, Axis::Shards}) {
    placement[size_t(axis)] = {};
    placement.strides[size_t(axis)] = 0;
  }
  return placement;
}

// Nowhere fewer neighbours in a node or under a switch, and every border of stages that `b` has inside one `a` has too.
bool isNoSlower(const Cluster &cluster, const Placement &a, const Placement &b) {
  if (a.strides != b.strides) return false; // not told by the numbers alone
  for (size_t axis = 0; axis < numAxes; ++axis) {
    if (b[axis].perNode == 1 && isBetterAlone(cluster, a[axis].perNode)) return false;
    for (Tier tier = inNode; tier <= cluster.levels.size(); ++tier)
      if (a[axis].within(tier) < b[axis].within(tier)) return false;
  }
  for (Tier tier = inNode; tier <= cluster.levels.size(); ++tier)
    if (a[size_t(Axis::Pipeline)].within(tier) % b[size_t(Axis::Pipeline)].within(tier) != 0) return false;
  return a == b || isNodeFaster(cluster);
}

std::vector<AxisOrder> openOrders(const Cluster &cluster, const Setting &setting, const std::vector<Axis> &asked) {
  if (asked.empty() && cluster.nodes == 1) return {usualOrder};
  auto isLong = [&](Axis axis) { return setting.axisSize(axis) > 1; };
  std::vector<size_t> slots; // of the usual order whose axes are longer than 1
  for (size_t i = 0; i < usualOrder.size(); ++i)
    if (isLong(usualOrder[i]) || (usualOrder[i] == Axis::Tensor && setting.gridDevices() > 1)) slots.push_back(i);
  auto isAsked = [&](const AxisOrder &order) {
    auto last = order.begin();
    for (Axis axis : asked) {
      auto at = std::ranges::find(order, axis);
      if (std::ranges::find(slots, size_t(std::ranges::find(usualOrder, axis) - usualOrder.begin())) == slots.end())
        continue; // of size 1
      if (at < last) return false;
      last = at;
    }
    return true;
  };
  std::vector<std::pair<AxisOrder, Placement>> found;
  std::vector<size_t> turn = slots;
  do {
    Setting laid = setting;
    laid.order = usualOrder;
    for (size_t i = 0; i < slots.size(); ++i) laid.order[slots[i]] = usualOrder[turn[i]];
    if (!isAsked(laid.order)) continue;
    const Placement placement = placementOf(cluster, laid);
    auto isSame = [&](const auto &other) { return other.second == placement; };
    if (std::ranges::none_of(found, isSame)) found.emplace_back(laid.order, placement);
  } while (std::ranges::next_permutation(turn).found);
  std::vector<AxisOrder> open;
  for (const auto &[order, placement] : found) {
    auto isBetter = [&](const auto &other) {
      return other.second != placement && isNoSlower(cluster, other.second, placement);
    };
    if (std::ranges::none_of(found, isBetter)) open.push_back(order);
  }
  return open;
}

} // namespace cleave::planner
