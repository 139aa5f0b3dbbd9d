#include "compiler/attention/sequence_layout.h"
#include "dialects/onnx/kinds.h"

using namespace mlir;
using namespace cleave::dist;

namespace cleave::attention {

Mesh sequenceMesh(int64_t blocks) { return Mesh{{{"query", blocks}, {"key", blocks}}}; }

Sharding layoutOf(int64_t rank, SequenceDims dims) {
  Sharding layout = Sharding::replicated(static_cast<size_t>(rank));
  if (dims.query >= 0) layout.dims[static_cast<size_t>(dims.query)] = {"query"};
  if (dims.key >= 0) layout.dims[static_cast<size_t>(dims.key)] = {"key"};
  return layout;
}

SequenceDims dimsOf(const Sharding &layout) {
  SequenceDims dims;
  for (auto [dim, axes] : llvm::enumerate(layout.dims))
    for (const std::string &axis : axes) (axis == "query" ? dims.query : dims.key) = static_cast<int64_t>(dim);
  return dims;
}

bool isRegionOp(Operation *op) {
  if (isa<onnx::IotaOp>(op)) return false; // positions are operands: they travel
  return op->hasTrait<onnx::PerElement>() ||
         isa<onnx::BroadcastOp, onnx::ReshapeOp, onnx::TransposeOp, onnx::ContractOp>(op) || isSplat(op->getResult(0));
}

} // namespace cleave::attention
