// Which dimension of a tensor counts queries and which counts keys, found by the sharding algebra: attention's region
// is looked at as if it were split over a mesh with the axes "query" and "key".
//
//   x = Add s, Broadcast(bias)     x [b,h,{query},{key}]   ->   s [b,h,{query},{key}],  bias [{key}]
#pragma once
#include "dialects/onnx/kinds.h"
#include "runtime/base/sharding/factor_rule.h"

namespace cleave::attention {

// Dimensions of one tensor; -1: none.
struct SequenceDims {
  int64_t query = -1, key = -1;
  bool both() const { return query >= 0 && key >= 0; }
  bool operator==(const SequenceDims &) const = default;
};

dist::Mesh sequenceMesh(int64_t blocks); // query=blocks, key=blocks
dist::Sharding layoutOf(int64_t rank, SequenceDims dims);
SequenceDims dimsOf(const dist::Sharding &layout);

// Can attention's regions hold the op: does blocking know how to give it another leading dimension?
bool isRegionOp(mlir::Operation *op);
using onnx::isSplat;

} // namespace cleave::attention
