// In which order the mesh axes lie on the devices. Ranks inside a node communicate fast, and only so many fit.
//
//   a100-80g:8x2, pp=2,dp=2,tp=4     pp dp tp   tp and dp inside a node, stages send between nodes
//                                    dp pp tp   tp and pp inside a node, gradients are summed between nodes
//                                    tp pp dp   pp and dp inside a node, half of tp
//                                    pp tp dp   as the first, but for whose neighbours are next to each other: the same
#pragma once
#include "compiler/cluster/cost.h"
#include "runtime/base/sharding/mesh.h"
#include "runtime/base/status.h"
#include <array>
#include <string>
#include <vector>

namespace cleave::planner {

struct Setting;

// Depth, Row and Tensor of a grid (laid_axes.h) lie side by side, Tensor innermost; without one, Tensor is tp.
enum class Axis : uint8_t { Pipeline, Data, Shards, Sequence, Experts, Depth, Row, Tensor };
inline constexpr size_t numAxes = 8;

using AxisSet = uint8_t; // a bit for each
constexpr AxisSet setOf(std::initializer_list<Axis> axes) {
  AxisSet set = 0;
  for (Axis axis : axes) set = AxisSet(set | 1u << unsigned(axis));
  return set;
}
constexpr bool contains(AxisSet set, Axis axis) { return set >> unsigned(axis) & 1; }

// From the outermost to the innermost; Tensor stands for a grid's three.
using AxisOrder = std::array<Axis, 6>;
inline constexpr AxisOrder usualOrder = {Axis::Pipeline, Axis::Data,    Axis::Shards,
                                         Axis::Sequence, Axis::Experts, Axis::Tensor};

const char *name(Axis axis); // "pp", "dp", ..., "tp"
// The set of a mesh's axes, a grid's "tp_col" as well as "tp".
AxisSet setOfNames(const dist::Axes &axes);
// "pp,dp,tp": the first outermost. Errors: unknown axes, an axis twice.
Result<std::vector<Axis>> parseAxisOrder(const std::string &text);

// The order of a mesh's axes; axes that it lacks are outermost.
AxisOrder orderOf(const dist::Mesh &mesh);

// How many neighbours along each axis stand in one node, and under one switch. Prices depend on the order by these
// alone; where groups do not begin and end where nodes and switches do, by the distances of neighbours, too.
struct Placement {
  std::array<GroupShape, numAxes> groups = {};
  std::array<int64_t, numAxes> strides = {}; // 0: of axes with one rank, and of all where they do not matter
  GroupShape &operator[](size_t axis) { return groups[axis]; }
  const GroupShape &operator[](size_t axis) const { return groups[axis]; }
  auto operator<=>(const Placement &) const = default;
};
Placement placementOf(const Cluster &cluster, const Setting &setting);
// The placement of the axes that a microbatch's own collectives are over.
Placement microbatchPlacement(const Cluster &cluster, const Setting &setting);
// Is no collective or send slower with `a` than with `b`?
bool isNoSlower(const Cluster &cluster, const Placement &a, const Placement &b);

// The orders of the setting's axes that differ in price, but for those that are slower than another for some axes and
// faster for none; the usual one first. `asked`: these axes one inside the other.
std::vector<AxisOrder> openOrders(const Cluster &cluster, const Setting &setting, const std::vector<Axis> &asked);

} // namespace cleave::planner
