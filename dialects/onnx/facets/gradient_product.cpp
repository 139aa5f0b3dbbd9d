// Gradient facet of reductions, products, convolution and pooling.
#include "dialects/onnx/formula.h"

using namespace mlir;
namespace cleave::onnx {
namespace {

using Grads = SmallVectorImpl<Value>;

// Maximum or minimum: tied elements share the gradient evenly.
Value shareAmongTied(Formula f, Value x, Value y, Value dy, ArrayRef<int64_t> axes) {
  auto type = tensorType(x);
  Value tied = f.make<EqualOp>(x, f.expand(y, type.getShape(), axes));
  Value count = f.reduceSum(f.cast(tied, type.getElementType()), axes);
  return f.only(tied, f.expand(f.div(dy, count), type.getShape(), axes));
}

} // namespace

LogicalResult ReduceSumOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>,
                                         Grads &operandGrads) {
  operandGrads.push_back(Formula(builder, getLoc()).expand(resultGrads[0], tensorType(getX()).getShape(), getAxes()));
  return success();
}
LogicalResult ReduceMaxOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>,
                                         Grads &operandGrads) {
  operandGrads.push_back(shareAmongTied(Formula(builder, getLoc()), getX(), getY(), resultGrads[0], getAxes()));
  return success();
}
LogicalResult ReduceMinOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>,
                                         Grads &operandGrads) {
  operandGrads.push_back(shareAmongTied(Formula(builder, getLoc()), getX(), getY(), resultGrads[0], getAxes()));
  return success();
}

// A product's gradient is a product with the index roles exchanged, without any transpose:
//   y[b,s,n] = x[b,s,k] w[k,n]    dx[b,s,k] = dy[b,s,n] w[k,n]    dw[k,n] = x[b,s,k] dy[b,s,n]
LogicalResult ContractOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                        Grads &operandGrads) {
  Formula f(builder, getLoc());
  Value dy = resultGrads[0];
  ArrayRef<int64_t> lhs = getLhsIndices(), rhs = getRhsIndices(), result = getResultIndices();
  operandGrads.push_back(wanted[0] ? f.make<ContractOp>(dy, getRhs(), result, rhs, lhs) : Value());
  operandGrads.push_back(wanted[1] ? f.make<ContractOp>(getLhs(), dy, lhs, result, rhs) : Value());
  return success();
}

// As a product's; the operand that has rows comes first.
LogicalResult GroupedContractOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                               Grads &operandGrads) {
  Formula f(builder, getLoc());
  auto product = [&](Value a, ArrayRef<int64_t> aIndices, Value b, ArrayRef<int64_t> bIndices, ArrayRef<int64_t> to) {
    return f.make<GroupedContractOp>(a, b, getGroups(), aIndices, bIndices, getRowIndices(), to, getGroupIndex(),
                                     getGroupCount(), /*shard_axes=*/ArrayAttr(), getGlobalGroupsAttr());
  };
  Value lhs = getLhs(), rhs = getRhs(), dy = resultGrads[0];
  ArrayRef<int64_t> left = getLhsIndices(), right = getRhsIndices(), result = getResultIndices();
  operandGrads.push_back(!wanted[0]   ? Value()
                         : sumsRows() ? product(rhs, right, dy, result, left)
                                      : product(dy, result, rhs, right, left));
  operandGrads.push_back(wanted[1] ? product(lhs, left, dy, result, right) : Value());
  operandGrads.push_back(Value());
  return success();
}

LogicalResult ConvOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                    Grads &operandGrads) {
  Formula f(builder, getLoc());
  Value x = getX(), w = getW(), dy = resultGrads[0];
  operandGrads.push_back(wanted[0] ? f.make<ConvGradInputOp>(dy, w, tensorType(x).getShape(), getStrides(),
                                                             getPadsBegin(), getPadsEnd(), getDilations(), getGroups())
                                   : Value());
  operandGrads.push_back(wanted[1] ? f.make<ConvGradWeightOp>(x, dy, tensorType(w).getShape(), getStrides(),
                                                              getPadsBegin(), getPadsEnd(), getDilations(), getGroups())
                                   : Value());
  return success();
}

// As a forward op (ConvTranspose): its transpose is the convolution itself.
LogicalResult ConvGradInputOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                             Grads &operandGrads) {
  Formula f(builder, getLoc());
  Value w = getW(), g = resultGrads[0];
  operandGrads.push_back(
      wanted[0] ? f.make<ConvOp>(g, w, getStrides(), getPadsBegin(), getPadsEnd(), getDilations(), getGroups())
                : Value());
  operandGrads.push_back(wanted[1] ? f.make<ConvGradWeightOp>(g, getDy(), tensorType(w).getShape(), getStrides(),
                                                              getPadsBegin(), getPadsEnd(), getDilations(), getGroups())
                                   : Value());
  return success();
}

LogicalResult MaxPoolOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>,
                                       Grads &operandGrads) {
  operandGrads.push_back(Formula(builder, getLoc())
                             .make<MaxPoolGradOp>(getX(), resultGrads[0], getKernel(), getStrides(), getPadsBegin(),
                                                  getPadsEnd(), getDilations()));
  return success();
}

LogicalResult AveragePoolOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>,
                                           Grads &operandGrads) {
  operandGrads.push_back(Formula(builder, getLoc())
                             .make<AveragePoolGradOp>(resultGrads[0], tensorType(getX()).getShape(), getKernel(),
                                                      getStrides(), getPadsBegin(), getPadsEnd(), getDilations(),
                                                      getIncludePad()));
  return success();
}

} // namespace cleave::onnx
