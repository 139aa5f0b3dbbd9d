// The operations around a product whose result is far larger than what goes into it and what comes out: a language
// model's head and its loss, forward and backward.
//
//   logits [16, 1024, 50257] = Contract x [16, 1024, 768], w     the product
//   max, exp, sum, one-hot of the labels ... loss [16, 1024]      members: they carry the samples, factor of size 16
//   dlogits -> dx [16, 1024, 768]                                 leaves the region, cut along its dimension 0
//   dw [768, 50257] = Contract x, dlogits                         leaves it as a sum over the samples
//
// Every member can run on a part of the rows, one part after the other, and no part needs another: what enters and what
// leaves is either cut along one dimension, or the same for all parts, or a sum (largest, smallest) over them.
#pragma once
#include "dialects/onnx/Onnx.h"
#include "runtime/base/sharding/collective.h"
#include "llvm/ADT/SetVector.h"
#include <optional>

namespace cleave::partition {

struct ChunkRegion {
  int64_t rows = 0;                         // the size of the factor that is cut
  llvm::SetVector<mlir::Operation *> members; // in the order of their block
  llvm::DenseMap<mlir::Value, int64_t> dims;  // of a value that is cut: along which dimension
  llvm::DenseMap<mlir::Value, dist::Reduction> sums; // of a member's result that every part makes a term of

  // The part [begin, end) of the rows of a dimension of this value.
  int64_t sizeOf(mlir::Value value, int64_t begin, int64_t end) const;
};

// Around this product, cut along a dimension whose parts have at least two rows, if there is one; none where some operation needs all rows at once, or where what leaves the region is as large as
// what it would no longer store.
std::optional<ChunkRegion> findChunkRegion(onnx::ContractOp product, int64_t parts);

// The regions of a block, from the largest product on; no operation is in two.
std::vector<ChunkRegion> chunkRegions(mlir::Block &block, int64_t parts);

} // namespace cleave::partition
