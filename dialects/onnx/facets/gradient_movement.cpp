// Gradient facet of the movement and indexing core ops: each is linear, its gradient is the transposed movement.
#include "dialects/onnx/formula.h"
#include <numeric>

using namespace mlir;
namespace cleave::onnx {
namespace {
using Grads = SmallVectorImpl<Value>;
using Dims = SmallVector<int64_t>;
} // namespace

LogicalResult ReshapeOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>,
                                       Grads &operandGrads) {
  operandGrads.push_back(Formula(builder, getLoc()).make<ReshapeOp>(resultGrads[0], tensorType(getX()).getShape()));
  return success();
}

LogicalResult TransposeOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>,
                                         Grads &operandGrads) {
  Dims inverse(getPerm().size());
  for (auto [i, dim] : llvm::enumerate(getPerm())) inverse[dim] = static_cast<int64_t>(i);
  operandGrads.push_back(Formula(builder, getLoc()).make<TransposeOp>(resultGrads[0], inverse));
  return success();
}

LogicalResult BroadcastOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>,
                                         Grads &operandGrads) {
  Dims repeated;
  for (int64_t d = 0, rank = tensorType(getY()).getRank(); d < rank; ++d)
    if (!llvm::is_contained(getDims(), d)) repeated.push_back(d);
  operandGrads.push_back(Formula(builder, getLoc()).reduceSum(resultGrads[0], repeated));
  return success();
}

// The elements cut off have no gradient: zeros before, after and between.
LogicalResult SliceOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>, Grads &operandGrads) {
  Formula f(builder, getLoc());
  auto type = tensorType(getX());
  if (llvm::is_contained(getSizes(), 0)) {
    operandGrads.push_back(f.constant(type, 0));
    return success();
  }
  Dims low(getStarts()), high, interior;
  for (int64_t d = 0; d < type.getRank(); ++d) {
    interior.push_back(getSteps()[d] - 1);
    high.push_back(type.getDimSize(d) - (getStarts()[d] + (getSizes()[d] - 1) * getSteps()[d] + 1));
  }
  operandGrads.push_back(f.make<PadOp>(resultGrads[0], low, high, interior, APFloat(0.0)));
  return success();
}

LogicalResult PadOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>, Grads &operandGrads) {
  Dims steps;
  for (int64_t between : getInterior()) steps.push_back(between + 1);
  operandGrads.push_back(
      Formula(builder, getLoc()).make<SliceOp>(resultGrads[0], getLow(), tensorType(getX()).getShape(), steps));
  return success();
}

LogicalResult ConcatOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                      Grads &operandGrads) {
  Formula f(builder, getLoc());
  Dims starts(tensorType(getY()).getRank(), 0), steps(starts.size(), 1);
  for (auto [x, want] : llvm::zip_equal(getXs(), wanted)) {
    ArrayRef<int64_t> sizes = tensorType(x).getShape();
    operandGrads.push_back(want ? f.make<SliceOp>(resultGrads[0], starts, sizes, steps) : Value());
    starts[getAxis()] += sizes[getAxis()];
  }
  return success();
}

LogicalResult GatherOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                      Grads &operandGrads) {
  int64_t axis = getAxis(), rows = tensorType(getTable()).getDimSize(axis);
  Formula f(builder, getLoc());
  Value updates = resultGrads[0];
  if (const auto row = static_cast<int64_t>(getPaddingRow()); row >= 0 && wanted[0]) {
    Value isPadding = f.make<EqualOp>(getIndices(), f.like(getIndices(), static_cast<double>(row)));
    Dims along(static_cast<size_t>(tensorType(getIndices()).getRank()));
    std::iota(along.begin(), along.end(), axis);
    isPadding = f.make<BroadcastOp>(isPadding, tensorType(updates).getShape(), along);
    updates = f.where(isPadding, f.like(updates, 0), updates);
  }
  operandGrads.push_back(wanted[0] ? f.make<ScatterAddOp>(getIndices(), updates, axis, rows,
                                                          /*shard_axes=*/ArrayAttr(), /*global_rows=*/IntegerAttr(),
                                                          getBatchDims())
                                   : Value());
  operandGrads.push_back(Value());
  return success();
}

LogicalResult ScatterAddOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                          Grads &operandGrads) {
  operandGrads.push_back(Value());
  operandGrads.push_back(wanted[1] ? Formula(builder, getLoc())
                                         .make<GatherOp>(resultGrads[0], getIndices(), getAxis(),
                                                         /*shard_axes=*/ArrayAttr(), /*global_rows=*/IntegerAttr(),
                                                         getBatchDims())
                                   : Value());
  return success();
}

LogicalResult RollOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>, Grads &operandGrads) {
  operandGrads.push_back(
      Formula(builder, getLoc()).make<RollOp>(resultGrads[0], getDim(), -static_cast<int64_t>(getDistance())));
  return success();
}

LogicalResult CumSumOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>, Grads &operandGrads) {
  operandGrads.push_back(
      Formula(builder, getLoc()).make<CumSumOp>(resultGrads[0], getAxis(), getExclusive(), /*reverse=*/!getReverse()));
  return success();
}

} // namespace cleave::onnx
