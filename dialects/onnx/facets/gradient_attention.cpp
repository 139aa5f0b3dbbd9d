// Gradient facets of the two attention operations. AttentionGrad takes the operands and results of Attention and is
// expanded later (compiler/attention), so that the probabilities are recomputed instead of saved.
#include "dialects/onnx/Onnx.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
namespace cleave::onnx {

LogicalResult AttentionOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                         SmallVectorImpl<Value> &operandGrads) {
  if (resultGrads[1] || resultGrads[2]) return emitOpError("has no derivative of its maxima and sums");
  SmallVector<Value> operands(getXs());
  operands.append({getOut(), getMax(), getSum(), resultGrads[0]});
  SmallVector<int64_t> wantedOperands;
  SmallVector<Type> gradTypes;
  for (auto [index, isWanted] : llvm::enumerate(wanted))
    if (isWanted) {
      wantedOperands.push_back(static_cast<int64_t>(index));
      gradTypes.push_back(getXs()[index].getType());
    }
  auto grad =
      AttentionGradOp::create(builder, getLoc(), gradTypes, operands, builder.getDenseI64ArrayAttr(wantedOperands),
                              getQueryDimsAttr(), getKeyDimsAttr(), getScoreQueryAttr(), getScoreKeyAttr(),
                              getOutQueryAttr(), getBlocksAttr(), getZeroEmptyRowsAttr(), getCausalAttr());
  IRMapping mapping;
  getScore().cloneInto(&grad.getScore(), mapping);
  getWeigh().cloneInto(&grad.getWeigh(), mapping);
  operandGrads.assign(wanted.size(), Value());
  for (auto [index, value] : llvm::zip_equal(wantedOperands, grad.getGrads())) operandGrads[index] = value;
  return success();
}

LogicalResult ScaledAttentionOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                               SmallVectorImpl<Value> &operandGrads) {
  if (resultGrads[1]) return emitOpError("has no derivative of its statistics");
  if (getBias() && wanted[3]) return emitOpError("has no derivative by its bias");
  auto grad = ScaledAttentionGradOp::create(builder, getLoc(), getQuery(), getKey(), getValue(), getBias(),
                                            getScaleAttr(), getLeftBoundAttr(), getRightBoundAttr(), getSoftCapAttr(),
                                            getOut(), getStats(), resultGrads[0]);
  llvm::append_range(operandGrads, grad.getResults());
  if (getBias()) operandGrads.push_back(Value());
  for (auto [gradient, isWanted] : llvm::zip_equal(operandGrads, wanted))
    if (!isWanted) gradient = Value();
  return success();
}

} // namespace cleave::onnx
