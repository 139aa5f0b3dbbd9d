// One point of the outer search: how many ranks each mesh axis has and in which order they lie on the devices, the ZeRO
// stage, microbatches, schedule and recomputation. The inner search decides the rest: shardings and stages.
//
//   a100-80g:8, dp=2,tp=4 zero 1 microbatches 8: batchWays() 2, group(tp) four devices of one node
#pragma once
#include "compiler/cluster/cost.h"
#include "compiler/planner/problem/constraints.h"
#include "compiler/planner/problem/decision.h"
#include "compiler/planner/problem/mesh_order.h"
#include "compiler/planner/problem/problem.h"
#include <string>
#include <vector>

namespace cleave::planner {

// A mesh axis whose split of every node follows from the graph (laid_axes.h).
struct LaidAxis {
  const char *name = "";
  int64_t size = 1;
  std::vector<int64_t> factors; // per node; -1: none
};

struct Setting {
  int64_t dp = 1, fsdp = 1, tp = 1;
  int64_t pp = 1;                      // pipeline ranks
  int64_t cp = 1, ep = 1;              // parts of the sequence; of the experts
  TensorGrid grid = TensorGrid::None;  // then tp is 1
  int64_t gridSide = 1, gridDepth = 1; // a cube's depth is its side
  AxisOrder order = usualOrder;        // on the devices
  int zero = 0;                        // stage; with SplitModel::lowers that of the other parameters
  int lowerZero = 0;                   // of those
  int64_t microbatches = 1;
  Recompute recompute = Recompute::None;
  bool exceptLast = false; // the last microbatch keeps all it makes
  int64_t chunks = 1;      // Decision::chunks
  Offload offload = Offload::None;
  bool meetsAtUpdate = false;    // Problem::meetsAtUpdate
  bool batchDivides = true;      // false: the sample dimension is left whole
  std::string schedule = "none"; // of the pipeline
  int weightVersions = 1;        // that its schedule keeps

  // Devices of the grid, and those of its axes that split samples.
  int64_t gridDevices() const { return gridDepth * gridSide * gridSide; }
  int64_t gridBatchWays() const { return grid == TensorGrid::Plane ? gridDepth * gridSide : gridDepth; }
  int64_t batchWays() const { return batchDivides ? dp * fsdp * gridBatchWays() : 1; }
  // Devices that have the same part of a parameter and other samples, or another part of the sequence; of a stacked
  // weight, those along ep have another part.
  int64_t gradientWays() const { return batchWays() * cp * ep; }
  int64_t zeroWays() const { return grid != TensorGrid::None ? gridSide : fsdp > 1 ? fsdp : dp; }
  // Devices that have the same shard of a parameter under ZeRO, beside those along the sequence.
  int64_t replicas() const { return grid != TensorGrid::None || fsdp > 1 ? batchWays() / zeroWays() : 1; }
  int64_t devices() const { return pp * dp * fsdp * cp * ep * gridDevices() * tp; }
  int64_t axisSize(Axis axis) const;
  std::array<Axis, numAxes> allAxes() const; // from the outermost, with a grid's three
  int64_t stride(Axis axis) const;           // devices between neighbours
  GroupShape group(const Cluster &cluster, AxisSet axes) const;
  AxisSet batchSet() const; // the axes of batchWays()
  AxisSet zeroSet() const;  // and of zeroWays()
  // Is a parameter's gradient added to a sum over the microbatches? A stage does, whatever their number.
  bool addsUpGradients() const { return microbatches > 1 || pp > 1; }
  // Is it made apart from where it stays, to be added to that sum or scattered?
  bool passesGradientsOn() const { return addsUpGradients() || zero >= 2; }
  // How far two pipeline ranks are apart.
  Tier tierBetweenRanks(const Cluster &cluster, int from, int to) const;
  // Samples of one microbatch on one device.
  double localSamples(int64_t batch) const { return double(batch) / double(microbatches) / double(batchWays()); }
  std::string nameOf(Axis axis) const; // in the mesh
  dist::Mesh mesh() const;
  dist::Axes batchAxes() const;
  dist::Axes zeroAxes() const;
  dist::Axes namesOf(AxisSet axes) const; // of those that have several devices, in the order of the mesh
  // The axes that are laid, without factors; in the order of the mesh.
  std::vector<LaidAxis> laidAxes() const;
  // Parts of the rows of what is chunked: as many as were asked for, or so many that one is small enough on a device.
  int64_t chunksOf(const Problem &problem, const std::optional<int64_t> &asked) const;
  std::string str() const; // "dp=2,tp=4 zero 1 microbatches 2 recompute none"
};

} // namespace cleave::planner
