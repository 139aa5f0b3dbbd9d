#include "runtime/engine/comm/all_to_all.h"
#include "runtime/base/boxes.h"
#include "runtime/plan/dtype.h"

namespace cleave::runtime {

AllToAllPiece pieceOf(const CollectivePart &part, int64_t members) {
  AllToAllPiece piece{part.inputShape, rowMajorStrides(part.inputShape), rowMajorStrides(part.outputShape)};
  auto split = static_cast<size_t>(part.splitDim), join = static_cast<size_t>(part.dim);
  piece.sizes[split] /= members;
  piece.sourceStep = piece.sizes[split] * piece.sourceStrides[split] * byteSize(part.dtype);
  piece.targetStep = piece.sizes[join] * piece.targetStrides[join] * byteSize(part.dtype);
  return piece;
}

} // namespace cleave::runtime
