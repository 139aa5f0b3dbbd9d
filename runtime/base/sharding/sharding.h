// How one tensor lies on a mesh: which axes split which dimension, and over which axes it is a partial sum.
//
//   mesh dp=2, tp=2; x : 8x16x64
//   [{dp},{},{tp}]             every device holds 4x16x32
//   [{dp},{},{}] partial(tp)   every device holds 4x16x64; the tensor is the sum over tp
#pragma once
#include "runtime/base/sharding/collective.h"
#include "runtime/base/sharding/mesh.h"

namespace cleave::dist {

struct Sharding {
  std::vector<Axes> dims; // one entry a dimension, axes major first
  Axes partial;           // axes over which the devices' values still have to be combined
  Reduction reduction = Reduction::Sum;

  static Sharding replicated(size_t rank) { return {std::vector<Axes>(rank), {}, Reduction::Sum}; }
  bool isReplicated() const;
  bool uses(const std::string &axis) const; // in a dimension or in partial
  // "[{dp},{},{tp}] partial(tp)"
  std::string str() const;
  static bool parse(const std::string &text, Sharding &sharding, std::string &error);
  bool operator==(const Sharding &) const = default;
};

// The shape on one device. False, with a reason, when an axis is used twice, the rank differs, or a dimension does
// not divide evenly (a caller then leaves that dimension whole).
bool localShape(const Mesh &mesh, const Sharding &sharding, const std::vector<int64_t> &global,
                std::vector<int64_t> &local, std::string &error);

// One collective of a reshard.
struct ReshardStep {
  Collective kind;
  Axes axes;
  int64_t dim = -1;      // dimension that is scattered, gathered, kept a part of; AllToAll: joined
  int64_t splitDim = -1; // AllToAll: the dimension that is cut
  Reduction reduction = Reduction::Sum;
  bool operator==(const ReshardStep &) const = default;
};

// The steps that turn a tensor laid out as `from` into `to`, the fewest bytes first: a partial axis that ends up
// splitting a dimension becomes a reduce-scatter, a moved axis an all-to-all, and slices come before gathers.
// `to` must not be partial, except over axes that `from` is partial over too (they stay).
std::vector<ReshardStep> reshard(const Mesh &mesh, const Sharding &from, const Sharding &to);

// Bytes that one device sends for a step on a tensor whose local size before the step is `localBytes` (ring and
// pairwise algorithms; n is the group size): all-reduce 2(n-1)/n B, reduce-scatter (n-1)/n B, all-gather (n-1) B,
// all-to-all (n-1)/n B, own part 0.
double trafficBytes(const Mesh &mesh, const ReshardStep &step, double localBytes);
// Local size after the step.
double bytesAfter(const Mesh &mesh, const ReshardStep &step, double localBytes);

} // namespace cleave::dist
