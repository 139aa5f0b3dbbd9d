// Geometry of a collective's parts, shared by the verifier and the communicators, and whether a dtype can be reduced.
//
//   reduce_scatter over 2 of f32[4x6] along dim 1 -> f32[4x3]: outer 4, length 3, inner 1
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/sharding/mesh.h"
#include "runtime/base/status.h"
#include <cstdint>
#include <vector>

namespace cleave::runtime {

// Geometry of one part of a collective, the same on all members.
struct CollectivePart {
  plan::DType dtype;
  int64_t inputOffset = 0, outputOffset = 0; // bytes in the arena
  int64_t outer = 1, length = 1,
          inner = 1; // along `dim`: the input's (ALL_GATHER, others) or the output's (REDUCE_SCATTER) size
  std::vector<int64_t> inputShape, outputShape;
  int64_t dim = 0, splitDim = 0;
  int64_t distance = 0; // SHIFT: to the member so many places on, in [0, members)
  int64_t elements() const { return outer * length * inner; }
};

// The elements of an all-reduce that member `self` sums, for all; pieces begin at cache lines.
struct PartRange {
  int64_t begin = 0, count = 0;
};
PartRange ownPiece(const CollectivePart &part, int64_t members, int64_t self);

// Parts of a collective over a group of `members`. Error: shapes, dtypes or dims that do not fit together.
Result<std::vector<CollectivePart>> partsOf(const plan::Collective &collective, int64_t members);

// The devices that a device meets in a collective, in their order, its place among them, and the parts.
struct CollectiveGroup {
  std::vector<int64_t> members;
  int64_t self = 0;
  std::vector<CollectivePart> parts;
  int64_t count() const { return static_cast<int64_t>(members.size()); }
};
Result<CollectiveGroup> groupOf(const plan::Collective &collective, const dist::Mesh &mesh, int64_t device);
// Bytes that the device sends to the others, as messages between processes are.
int64_t sentBytes(plan::Collective::Op op, const CollectiveGroup &group);

} // namespace cleave::runtime
