// Shape facet of the elementwise core ops and of values made from nothing: result types from operands and attributes.
#include "dialects/onnx/formula.h"

using namespace mlir;
namespace cleave::onnx {
namespace {

using Types = SmallVectorImpl<Type>;

// All operands must have the same type; the result has it too.
template <typename Adaptor> LogicalResult sameType(std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto operands = adaptor.getOperands();
  if (operands.empty()) return emitOptionalError(loc, "needs at least one operand");
  Type first = operands.front().getType();
  for (Value operand : operands)
    if (operand.getType() != first)
      return emitOptionalError(loc, "operands differ: ", first, " and ", operand.getType(),
                               " (core ops do not broadcast)");
  results.push_back(first);
  return success();
}

// As sameType, with i1 elements.
template <typename Adaptor> LogicalResult predicate(std::optional<Location> loc, Adaptor adaptor, Types &results) {
  if (failed(sameType(loc, adaptor, results))) return failure();
  auto type = cast<RankedTensorType>(results.pop_back_val());
  results.push_back(type.clone(IntegerType::get(type.getContext(), 1)));
  return success();
}

} // namespace

#define SHAPE_SAME(OP)                                                                                                 \
  LogicalResult OP::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {    \
    return sameType(loc, adaptor, results);                                                                            \
  }
#define SHAPE_PREDICATE(OP)                                                                                            \
  LogicalResult OP::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {    \
    return predicate(loc, adaptor, results);                                                                           \
  }
SHAPE_SAME(NegOp)
SHAPE_SAME(AbsOp)
SHAPE_SAME(SignOp)
SHAPE_SAME(ExpOp)
SHAPE_SAME(LogOp)
SHAPE_SAME(Log1pOp)
SHAPE_SAME(SqrtOp)
SHAPE_SAME(RsqrtOp)
SHAPE_SAME(ReciprocalOp)
SHAPE_SAME(TanhOp)
SHAPE_SAME(SigmoidOp)
SHAPE_SAME(ErfOp)
SHAPE_SAME(SinOp)
SHAPE_SAME(CosOp)
SHAPE_SAME(FloorOp)
SHAPE_SAME(CeilOp)
SHAPE_SAME(RoundOp)
SHAPE_SAME(ReluOp)
SHAPE_SAME(StopGradientOp)
SHAPE_SAME(NotOp)
SHAPE_SAME(AddOp)
SHAPE_SAME(SubOp)
SHAPE_SAME(MulOp)
SHAPE_SAME(DivOp)
SHAPE_SAME(PowOp)
SHAPE_SAME(MaxOp)
SHAPE_SAME(MinOp)
SHAPE_SAME(ModOp)
SHAPE_SAME(AndOp)
SHAPE_SAME(OrOp)
SHAPE_SAME(XorOp)
SHAPE_SAME(SumOp)
SHAPE_PREDICATE(IsNaNOp)
SHAPE_PREDICATE(IsInfOp)
SHAPE_PREDICATE(EqualOp)
SHAPE_PREDICATE(LessOp)
SHAPE_PREDICATE(LessOrEqualOp)
SHAPE_PREDICATE(GreaterOp)
SHAPE_PREDICATE(GreaterOrEqualOp)
#undef SHAPE_SAME
#undef SHAPE_PREDICATE

LogicalResult CastOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  Type to = adaptor.getTo();
  if (!to.isIntOrFloat()) return emitOptionalError(loc, "cannot cast to ", to);
  results.push_back(tensorType(adaptor.getX()).clone(to));
  return success();
}

LogicalResult WhereOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto condition = tensorType(adaptor.getCondition()), a = tensorType(adaptor.getA()), b = tensorType(adaptor.getB());
  if (a != b || condition.getShape() != a.getShape() || !condition.getElementType().isInteger(1))
    return emitOptionalError(loc, "wants a condition of i1 and two equal types, got ", condition, ", ", a, ", ", b);
  results.push_back(a);
  return success();
}

LogicalResult ConstantOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                           Types &results) {
  auto type = dyn_cast<RankedTensorType>(adaptor.getValue().getType());
  if (!type) return emitOptionalError(loc, "wants a ranked tensor");
  results.push_back(type);
  return success();
}

OpFoldResult ConstantOp::fold(FoldAdaptor) { return getValueAttr(); }

LogicalResult IotaOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto type = dyn_cast<RankedTensorType>(adaptor.getType());
  if (!type || !type.hasStaticShape()) return emitOptionalError(loc, "wants a static tensor type");
  int64_t dim = adaptor.getDim();
  if (dim < 0 || dim >= type.getRank()) return emitOptionalError(loc, "has no dimension ", dim);
  results.push_back(type);
  return success();
}

LogicalResult RandomUniformOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                                Types &results) {
  auto type = dyn_cast<RankedTensorType>(adaptor.getType());
  auto key = tensorType(adaptor.getKey());
  if (!type || !type.hasStaticShape()) return emitOptionalError(loc, "wants a static tensor type");
  if (key.getNumElements() != 2 || !key.getElementType().isInteger(64))
    return emitOptionalError(loc, "wants a key of 2 x i64, got ", key);
  results.push_back(type);
  return success();
}

} // namespace cleave::onnx
