// Factor rules of the elementwise core ops and of values made from nothing: every dimension is a parallel factor.
#include "dialects/onnx/facets/rule_building.h"

namespace cleave::onnx {
using namespace rules;
namespace {

FactorRule perElement(mlir::Operation *op) {
  FactorRule rule;
  TensorFactors factors = parallel(rule, shape(op->getResult(0)));
  rule.operands.assign(op->getNumOperands(), factors);
  rule.results.assign(op->getNumResults(), factors);
  return rule;
}

} // namespace

// Ops through which no partial sum may pass.
#define NOT_LINEAR(OP)                                                                                                 \
  FactorRule OP::getFactorRule() { return perElement(*this); }
NOT_LINEAR(AbsOp)
NOT_LINEAR(SignOp)
NOT_LINEAR(ExpOp)
NOT_LINEAR(LogOp)
NOT_LINEAR(Log1pOp)
NOT_LINEAR(SqrtOp)
NOT_LINEAR(RsqrtOp)
NOT_LINEAR(ReciprocalOp)
NOT_LINEAR(TanhOp)
NOT_LINEAR(SigmoidOp)
NOT_LINEAR(ErfOp)
NOT_LINEAR(SinOp)
NOT_LINEAR(CosOp)
NOT_LINEAR(FloorOp)
NOT_LINEAR(CeilOp)
NOT_LINEAR(RoundOp)
NOT_LINEAR(ReluOp)
NOT_LINEAR(NotOp)
NOT_LINEAR(IsNaNOp)
NOT_LINEAR(IsInfOp)
NOT_LINEAR(CastOp) // rounding is not linear, and a float sum cut to an integer even less so
NOT_LINEAR(PowOp)
NOT_LINEAR(MaxOp)
NOT_LINEAR(MinOp)
NOT_LINEAR(ModOp)
NOT_LINEAR(AndOp)
NOT_LINEAR(OrOp)
NOT_LINEAR(XorOp)
NOT_LINEAR(EqualOp)
NOT_LINEAR(LessOp)
NOT_LINEAR(LessOrEqualOp)
NOT_LINEAR(GreaterOp)
NOT_LINEAR(GreaterOrEqualOp)
NOT_LINEAR(ConstantOp) // also when not splat: each device can cut its own part
#undef NOT_LINEAR

#define LINEAR_TOGETHER(OP)                                                                                            \
  FactorRule OP::getFactorRule() {                                                                                     \
    FactorRule rule = perElement(*this);                                                                               \
    linearTogether(rule);                                                                                              \
    return rule;                                                                                                       \
  }
LINEAR_TOGETHER(NegOp)
LINEAR_TOGETHER(StopGradientOp)
LINEAR_TOGETHER(AddOp)
LINEAR_TOGETHER(SubOp)
LINEAR_TOGETHER(SumOp)
#undef LINEAR_TOGETHER

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

FactorRule IotaOp::getFactorRule() { return perElement(*this); }

FactorRule RandomUniformOp::getFactorRule() {
  FactorRule rule;
  rule.results = {parallel(rule, shape(getY()))};
  rule.operands = {whole(rule, shape(getKey()))};
  return rule;
}

} // namespace cleave::onnx
