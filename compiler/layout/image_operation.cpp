#include "compiler/layout/image_operation.h"
#include "compiler/partition/layouts.h"
#include "dialects/dist/Dist.h"
#include "dialects/place/Place.h"

using namespace mlir;
namespace cleave::layout {

bool isConvolution(Operation *op) { return isa<onnx::ConvOp, onnx::ConvGradInputOp, onnx::ConvGradWeightOp>(op); }
bool isPool(Operation *op) {
  return isa<onnx::MaxPoolOp, onnx::MaxPoolGradOp, onnx::AveragePoolOp, onnx::AveragePoolGradOp>(op);
}

static bool isImage(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && type.getRank() >= 3;
}

bool carriesOrder(Operation *op) {
  if (op->getNumResults() == 0 || op->getNumOperands() == 0 || !isImage(op->getOperand(0))) return false;
  if (isConvolution(op) || isPool(op)) return true;
  if (onnx::is(op, onnx::LoweringKind::Movement)) return !onnx::isRearrangement(op);
  if (isa<dist::AllReduceOp, dist::ReduceScatterOp, dist::AllGatherOp, dist::AllToAllOp, dist::BroadcastOp,
          dist::OwnPartOp, dist::ShiftOp>(op))
    return true;
  return onnx::isPointwise(op);
}

SmallVector<OpOperand *> orderedOperands(Operation *op) {
  SmallVector<OpOperand *> operands;
  for (OpOperand &operand : op->getOpOperands())
    if (isImage(operand.get()) && &operand != weightOperand(op)) operands.push_back(&operand);
  return operands;
}

SmallVector<Value> orderedResults(Operation *op) {
  if (isa<onnx::ConvGradWeightOp>(op)) return {};
  return llvm::filter_to_vector(ValueRange(op->getResults()), isImage);
}

bool reads(Operation *op) { return onnx::isReduction(op) && isImage(op->getOperand(0)); }

bool makes(Operation *op) {
  if (op->getNumResults() != 1 || !isImage(op->getResult(0))) return false;
  return onnx::isSplat(op->getResult(0)) || isa<onnx::IotaOp, onnx::BroadcastOp>(op);
}

OpOperand *weightOperand(Operation *op) {
  return isa<onnx::ConvOp, onnx::ConvGradInputOp>(op) ? &op->getOpOperand(1) : nullptr;
}

} // namespace cleave::layout
