#include "compiler/input_bounds.h"
#include "dialects/onnx/Onnx.h"

using namespace mlir;
namespace cleave {
namespace {

// The size of the dimension that an Iota counts, through broadcasts and reshapes; 0: not an Iota.
int64_t iotaSize(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (auto iota = dyn_cast<onnx::IotaOp>(op))
      return cast<RankedTensorType>(iota.getY().getType()).getDimSize(int64_t(iota.getDim()));
    if (!isa<onnx::BroadcastOp, onnx::ReshapeOp, onnx::TransposeOp, onnx::CastOp>(op)) return 0;
    value = op->getOperand(0);
  }
  return 0;
}

} // namespace

int64_t upperBound(BlockArgument argument) {
  int64_t bound = 0;
  auto tighten = [&](int64_t found) { bound = bound == 0 ? found : std::min(bound, found); };
  SmallVector<Value> pending{argument};
  llvm::SmallDenseSet<Operation *> seen;
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    for (OpOperand &use : value.getUses()) {
      Operation *op = use.getOwner();
      if (auto gather = dyn_cast<onnx::GatherOp>(op)) {
        if (use.getOperandNumber() == 1)
          tighten(cast<RankedTensorType>(gather.getTable().getType()).getDimSize(int64_t(gather.getAxis())));
        else if (seen.insert(op).second) // its entries in another order
          pending.push_back(gather.getY());
      } else if (auto equal = dyn_cast<onnx::EqualOp>(op)) {
        if (int64_t size = iotaSize(equal->getOperand(1 - use.getOperandNumber()))) tighten(size);
      } else if (isa<onnx::ReshapeOp, onnx::TransposeOp, onnx::BroadcastOp, onnx::SliceOp, onnx::CastOp,
                     onnx::WhereOp>(op)) {
        if (isa<onnx::CastOp>(op) && cast<RankedTensorType>(op->getResult(0).getType()).getElementType().isInteger(1))
          continue;
        if (seen.insert(op).second) pending.push_back(op->getResult(0));
      }
    }
  }
  return bound == 0 ? 2 : bound;
}

} // namespace cleave
