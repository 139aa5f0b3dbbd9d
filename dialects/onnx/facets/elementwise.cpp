// Facets of the elementwise core ops and of values made from nothing, as far as OnnxCoreOps.td does not say them: shapes,
// factor rules, gradients. How an element is computed is in lowering.cpp.
#include "dialects/onnx/facets/expressions.h"
#include "dialects/onnx/formula.h"
#include <numbers>

using namespace mlir;
namespace cleave::onnx {
using namespace rules;
namespace {
using Types = SmallVectorImpl<Type>;
using Grads = SmallVectorImpl<Value>;
} // namespace

//===--- shapes ---------------------------------------------------------------------------------------------------===//

LogicalResult sameType(std::optional<Location> loc, ValueRange operands, Types &results) {
  if (operands.empty()) return emitOptionalError(loc, "needs at least one operand");
  Type first = operands.front().getType();
  for (Value operand : operands)
    if (operand.getType() != first)
      return emitOptionalError(loc, "operands differ: ", first, " and ", operand.getType(),
                               " (core ops do not broadcast)");
  results.push_back(first);
  return success();
}

LogicalResult predicate(std::optional<Location> loc, ValueRange operands, Types &results) {
  if (failed(sameType(loc, operands, results))) return failure();
  auto type = cast<RankedTensorType>(results.pop_back_val());
  results.push_back(type.clone(IntegerType::get(type.getContext(), 1)));
  return success();
}

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

//===--- factor rules ---------------------------------------------------------------------------------------------===//

FactorRule rules::perElement(Operation *op) {
  FactorRule rule;
  TensorFactors factors = parallel(rule, shape(op->getResult(0)));
  rule.operands.assign(op->getNumOperands(), factors);
  rule.results.assign(op->getNumResults(), factors);
  return rule;
}
FactorRule rules::perElementLinear(Operation *op) {
  FactorRule rule = perElement(op);
  linearTogether(rule);
  return rule;
}

FactorRule MulOp::getFactorRule() {
  FactorRule rule = perElement(*this);
  linearIn(rule, {0, 1});
  return rule;
}
FactorRule DivOp::getFactorRule() {
  FactorRule rule = perElement(*this);
  if (llvm::isa<mlir::FloatType>(getY().getType().getElementType())) linearIn(rule, {0});
  return rule;
}

// condition ? partial : 0 is partial; so is condition ? partial : partial.
FactorRule WhereOp::getFactorRule() {
  FactorRule rule = perElement(*this);
  if (isZero(getB())) {
    linearIn(rule, {1});
  } else if (isZero(getA())) {
    linearIn(rule, {2});
  } else {
    linearTogether(rule);
    rule.linearOperands[0] = false;
  }
  return rule;
}

FactorRule RandomUniformOp::getFactorRule() {
  FactorRule rule;
  rule.results = {parallel(rule, shape(getY()))};
  rule.operands = {whole(rule, shape(getKey()))};
  return rule;
}

//===--- gradients ------------------------------------------------------------------------------------------------===//

// Formulas use only the op's operands and result, so that fusion can recompute what is cheap. dy is the result's
// gradient; ops whose derivative is zero give no gradient.

namespace {

// The value every element of a constant has, if it is such a splat.
std::optional<double> splatValue(Value value) {
  auto constant = value.getDefiningOp<ConstantOp>();
  if (!constant) return std::nullopt;
  auto elements = dyn_cast<DenseElementsAttr>(constant.getValue());
  if (!elements || !elements.isSplat() || !isa<FloatType>(elements.getElementType())) return std::nullopt;
  APFloat splat = elements.getSplatValue<APFloat>();
  bool losesInfo = false;
  splat.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &losesInfo);
  return splat.convertToDouble();
}

// Larger or smaller of both: the gradient goes to the operand that was chosen, half to each on a tie.
template <typename Chosen>
LogicalResult extremum(OpBuilder &builder, Location loc, Value a, Value b, Value dy, ArrayRef<bool> wanted,
                       Grads &grads) {
  Formula f(builder, loc);
  Value tie = f.make<EqualOp>(a, b), half = f.scale(dy, 0.5);
  grads.push_back(wanted[0] ? f.where(tie, half, f.only(f.make<Chosen>(a, b), dy)) : Value());
  grads.push_back(wanted[1] ? f.where(tie, half, f.only(f.make<Chosen>(b, a), dy)) : Value());
  return success();
}

// A sum of squares, in whatever shape and scale: it is 0 where all terms are.
bool isSumOfSquares(Value x) {
  bool isSum = false;
  for (Operation *op = x.getDefiningOp(); op; op = x.getDefiningOp()) {
    if (auto mul = dyn_cast<MulOp>(op)) {
      if (mul.getA() == mul.getB()) return isSum;
      const bool scalesA = splatValue(mul.getB()).has_value(), scalesB = splatValue(mul.getA()).has_value();
      if (!scalesA && !scalesB) return false;
      x = scalesA ? mul.getA() : mul.getB();
    } else if (auto div = dyn_cast<DivOp>(op)) {
      if (!splatValue(div.getB())) return false;
      x = div.getA();
    } else if (auto power = dyn_cast<PowOp>(op)) {
      return isSum && splatValue(power.getB()) == 2.0;
    } else if (isa<ReduceSumOp, ReshapeOp, BroadcastOp, TransposeOp>(op)) {
      isSum |= isa<ReduceSumOp>(op);
      x = op->getOperand(0);
    } else {
      return false;
    }
  }
  return false;
}

// The value of exp(x), for its derivative. In a softmax, p = exp(x) / s, it is p s. The backward pass reads p anyway,
// so neither exp(x) nor x has to be kept or made again.
Value exponential(Formula &f, Value y) {
  auto isSum = [&](Value s) {
    auto spread = s.getDefiningOp<BroadcastOp>();
    Value row = spread ? spread.getX() : Value();
    if (auto reshape = row ? row.getDefiningOp<ReshapeOp>() : nullptr) row = reshape.getX();
    auto sum = row ? row.getDefiningOp<ReduceSumOp>() : nullptr;
    return sum && sum.getX() == y;
  };
  for (Operation *user : y.getUsers())
    if (auto share = dyn_cast<DivOp>(user); share && share.getA() == y && isSum(share.getB()))
      return f.mul(share.getY(), share.getB());
  return y;
}

} // namespace

// One differentiable operand: EXPRESSION gives its gradient from f, x, y and dy.
#define GRADIENT_UNARY(OP, EXPRESSION)                                                                                 \
  LogicalResult OP::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>, Grads &operandGrads) {   \
    Formula f(builder, getLoc());                                                                                      \
    [[maybe_unused]] Value x = getX(), y = getY(), dy = resultGrads[0];                                                \
    operandGrads.push_back(EXPRESSION);                                                                                \
    return success();                                                                                                  \
  }
GRADIENT_UNARY(NegOp, f.neg(dy))
GRADIENT_UNARY(AbsOp, f.mul(dy, f.make<SignOp>(x)))
GRADIENT_UNARY(SignOp, Value())
GRADIENT_UNARY(ExpOp, f.mul(dy, exponential(f, y)))
GRADIENT_UNARY(LogOp, f.div(dy, x))
GRADIENT_UNARY(Log1pOp, f.div(dy, f.add(x, f.like(x, 1))))
GRADIENT_UNARY(RsqrtOp, f.mul(f.scale(dy, -0.5), f.mul(y, f.mul(y, y))))
GRADIENT_UNARY(ReciprocalOp, f.neg(f.mul(dy, f.mul(y, y))))
GRADIENT_UNARY(TanhOp, f.mul(dy, f.sub(f.like(y, 1), f.mul(y, y))))
GRADIENT_UNARY(SigmoidOp, f.mul(dy, f.mul(y, f.sub(f.like(y, 1), y))))
GRADIENT_UNARY(ErfOp, f.mul(dy, f.scale(f.make<ExpOp>(f.neg(f.mul(x, x))), 2 * std::numbers::inv_sqrtpi)))
GRADIENT_UNARY(SinOp, f.mul(dy, f.make<CosOp>(x)))
GRADIENT_UNARY(CosOp, f.neg(f.mul(dy, f.make<SinOp>(x))))
GRADIENT_UNARY(FloorOp, Value())
GRADIENT_UNARY(CeilOp, Value())
GRADIENT_UNARY(RoundOp, Value())
GRADIENT_UNARY(StopGradientOp, Value())
// y > 0 exactly where x > 0; y is what the next op keeps anyway.
GRADIENT_UNARY(ReluOp, f.only(f.make<GreaterOp>(y, f.like(y, 0)), dy))
GRADIENT_UNARY(CastOp, isFloatTensor(x) && isFloatTensor(y) ? f.cast(dy, tensorType(x).getElementType()) : Value())

// For a norm, or a deviation of equal values, PyTorch has 0: its formula for the whole never divides by
// the root. The root by itself has an infinite slope at 0.
LogicalResult SqrtOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>, Grads &operandGrads) {
  Formula f(builder, getLoc());
  Value dx = f.div(f.scale(resultGrads[0], 0.5), getY());
  operandGrads.push_back(isSumOfSquares(getX()) ? f.only(f.make<GreaterOp>(getY(), f.like(getY(), 0)), dx) : dx);
  return success();
}

// Two operands: EXPRESSION_A and EXPRESSION_B give their gradients from f, a, b, y and dy.
#define GRADIENT_BINARY(OP, EXPRESSION_A, EXPRESSION_B)                                                                \
  LogicalResult OP::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,                   \
                                  Grads &operandGrads) {                                                               \
    Formula f(builder, getLoc());                                                                                      \
    [[maybe_unused]] Value a = getA(), b = getB(), y = getY(), dy = resultGrads[0];                                    \
    operandGrads.push_back(wanted[0] ? (EXPRESSION_A) : Value());                                                      \
    operandGrads.push_back(wanted[1] ? (EXPRESSION_B) : Value());                                                      \
    return success();                                                                                                  \
  }
GRADIENT_BINARY(AddOp, dy, dy)
GRADIENT_BINARY(SubOp, dy, f.neg(dy))
GRADIENT_BINARY(MulOp, f.mul(dy, b), f.mul(dy, a))
GRADIENT_BINARY(DivOp, f.div(dy, b), f.neg(f.div(f.mul(dy, y), b)))

LogicalResult MaxOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                   Grads &operandGrads) {
  return extremum<GreaterOp>(builder, getLoc(), getA(), getB(), resultGrads[0], wanted, operandGrads);
}
LogicalResult MinOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                   Grads &operandGrads) {
  return extremum<LessOp>(builder, getLoc(), getA(), getB(), resultGrads[0], wanted, operandGrads);
}

// d/da = b a^(b-1), and 0 where b = 0 (also at a = 0); d/db = y log(a), and 0 where a = 0 and b >= 0 (as PyTorch).
LogicalResult PowOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                   Grads &operandGrads) {
  Formula f(builder, getLoc());
  Value a = getA(), b = getB(), dy = resultGrads[0];
  operandGrads.assign(2, Value());
  if (wanted[0]) {
    std::optional<double> exponent = splatValue(b);
    if (exponent == 1.0)
      operandGrads[0] = dy;
    else if (exponent == 2.0)
      operandGrads[0] = f.mul(dy, f.scale(a, 2));
    else if (exponent == 3.0)
      operandGrads[0] = f.mul(dy, f.scale(f.mul(a, a), 3));
    else if (exponent && *exponent != 0.0)
      operandGrads[0] = f.mul(dy, f.scale(f.make<PowOp>(a, f.like(b, *exponent - 1)), *exponent));
    else if (!exponent) {
      Value slope = f.mul(b, f.make<PowOp>(a, f.sub(b, f.like(b, 1))));
      Value constant = f.make<EqualOp>(b, f.like(b, 0));
      operandGrads[0] = f.mul(dy, f.where(constant, f.like(b, 0), slope));
    }
  }
  if (wanted[1]) {
    Value zero = f.like(a, 0);
    Value flat = f.make<AndOp>(f.make<EqualOp>(a, zero), f.make<GreaterOrEqualOp>(b, zero));
    operandGrads[1] = f.mul(dy, f.where(flat, zero, f.mul(getY(), f.make<LogOp>(a))));
  }
  return success();
}

LogicalResult WhereOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                     Grads &operandGrads) {
  Formula f(builder, getLoc());
  Value dy = resultGrads[0], condition = getCondition();
  operandGrads.push_back(Value());
  operandGrads.push_back(wanted[1] ? f.only(condition, dy) : Value());
  operandGrads.push_back(wanted[2] ? f.where(condition, f.like(dy, 0), dy) : Value());
  return success();
}

LogicalResult SumOp::buildGradient(OpBuilder &, ValueRange resultGrads, ArrayRef<bool> wanted, Grads &operandGrads) {
  for (bool want : wanted) operandGrads.push_back(want ? resultGrads[0] : Value());
  return success();
}

} // namespace cleave::onnx
