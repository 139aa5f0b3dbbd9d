// Gradient facets of the two attentions. Attention's is one operation that gets the forward operands and results and is
// expanded later (compiler/attention), so that the probabilities are computed again instead of being kept.
#include "dialects/onnx/Onnx.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
namespace cleave::onnx {

LogicalResult AttentionOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                         SmallVectorImpl<Value> &operandGrads) {
  if (resultGrads[1] || resultGrads[2]) return emitOpError("has no derivative of its maxima and sums");
  SmallVector<Value> operands(getXs());
  operands.append({getOut(), getMax(), getSum(), resultGrads[0]});
  SmallVector<int64_t> numbers;
  SmallVector<Type> types;
  for (auto [number, want] : llvm::enumerate(wanted))
    if (want) {
      numbers.push_back(static_cast<int64_t>(number));
      types.push_back(getXs()[number].getType());
    }
  auto grad = AttentionGradOp::create(builder, getLoc(), types, operands, builder.getDenseI64ArrayAttr(numbers),
                                      getQueryDimsAttr(), getKeyDimsAttr(), getScoreQueryAttr(), getScoreKeyAttr(),
                                      getOutQueryAttr(), getBlocksAttr(), getZeroEmptyRowsAttr(), getCausalAttr());
  IRMapping mapping;
  getScore().cloneInto(&grad.getScore(), mapping);
  getWeigh().cloneInto(&grad.getWeigh(), mapping);
  operandGrads.assign(wanted.size(), Value());
  for (auto [number, value] : llvm::zip_equal(numbers, grad.getGrads())) operandGrads[number] = value;
  return success();
}

LogicalResult ScaledAttentionOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                               SmallVectorImpl<Value> &operandGrads) {
  if (resultGrads[1]) return emitOpError("has no derivative of its statistics");
  if (getBias() && wanted[3]) return emitOpError("has no derivative by its bias");
  auto grad = ScaledAttentionGradOp::create(builder, getLoc(), getQuery(), getKey(), getValue(), getBias(),
                                            getScaleAttr(), getCausalAttr(), getOut(), getStats(), resultGrads[0]);
  llvm::append_range(operandGrads, grad.getResults());
  if (getBias()) operandGrads.push_back(Value());
  for (auto [gradient, want] : llvm::zip_equal(operandGrads, wanted))
    if (!want) gradient = Value();
  return success();
}

} // namespace cleave::onnx
