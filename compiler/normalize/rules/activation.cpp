// Activation functions, built from elementwise core ops and, for the softmax family, reductions. Where two pieces join,
// the derivative is PyTorch's: a choice between pieces is a Where, whose derivative is that of the piece chosen.
#include "compiler/normalize/node.h"
#include <cmath>
#include <numbers>

using namespace mlir;
namespace cleave::normalize {
namespace {

Value zero(Node &n, Value x) { return n.b.scalar(x, 0); }
Value positive(Node &n, Value x) { return n.b.unary<onnx::ReluOp>(x); }
// min(x, 0), with derivative 1 at 0.
Value negative(Node &n, Value x) { return n.b.where(n.b.binary<onnx::LessOrEqualOp>(x, zero(n, x)), x, zero(n, x)); }
Value expm1(Node &n, Value x) { return n.b.sub(n.b.unary<onnx::ExpOp>(x), 1); }

Value geluOf(Node &n, Value x, bool byTanh) {
  Value half = n.b.mul(x, 0.5);
  if (byTanh) { // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
    Value cube = n.b.mul(n.b.mul(x, x), x);
    Value inner = n.b.mul(n.b.add(x, n.b.mul(cube, 0.044715)), std::sqrt(2 / std::numbers::pi));
    return n.b.mul(half, n.b.add(n.b.unary<onnx::TanhOp>(inner), 1));
  }
  return n.b.mul(half, n.b.add(n.b.unary<onnx::ErfOp>(n.b.mul(x, std::sqrt(0.5))), 1));
}
Values gelu(Node &n) { return {geluOf(n, n.in(0), n.text("approximate", "none") == "tanh")}; }
// onnxruntime's, with a bias added first.
Value withBias(Node &n) { return n.has(1) ? n.b.add(n.in(0), n.in(1)) : n.in(0); }
Values biasGelu(Node &n) { return {geluOf(n, withBias(n), false)}; }
Values fastGelu(Node &n) { return {geluOf(n, withBias(n), true)}; }
Values quickGelu(Node &n) {
  return {n.b.mul(n.in(0), n.b.unary<onnx::SigmoidOp>(n.b.mul(n.in(0), n.real("alpha", 1.702))))};
}

Values leakyRelu(Node &n) {
  Value x = n.in(0);
  return {n.b.where(n.b.binary<onnx::GreaterOp>(x, zero(n, x)), x, n.b.mul(x, n.real("alpha", 0.01)))};
}
Values pRelu(Node &n) {
  Value x = n.in(0);
  return {n.b.where(n.b.binary<onnx::GreaterOp>(x, zero(n, x)), x, n.b.mul(x, n.in(1)))};
}
Values thresholdedRelu(Node &n) {
  Value x = n.in(0), above = n.b.binary<onnx::GreaterOp>(x, n.b.scalar(x, n.real("alpha", 1)));
  return {n.b.where(above, x, zero(n, x))};
}
// The exponential sees only the negative side: no overflow, hence no NaN in its derivative.
Values elu(Node &n) {
  Value x = n.in(0);
  return {n.b.add(positive(n, x), n.b.mul(expm1(n, negative(n, x)), n.real("alpha", 1)))};
}
Values celu(Node &n) {
  Value x = n.in(0);
  double alpha = n.real("alpha", 1);
  return {n.b.add(positive(n, x), n.b.mul(expm1(n, n.b.div(negative(n, x), alpha)), alpha))};
}
Values selu(Node &n) {
  Value x = n.in(0);
  double alpha = n.real("alpha", 1.67326319217681884765625), gamma = n.real("gamma", 1.05070102214813232421875);
  return {n.b.mul(n.b.add(positive(n, x), n.b.mul(expm1(n, negative(n, x)), alpha)), gamma)};
}
// Slopes are alpha strictly between the ends, and 0 on them: PyTorch's hardsigmoid.
Values hardSigmoid(Node &n) {
  Value x = n.in(0);
  double alpha = n.real("alpha", 0.2), beta = n.real("beta", 0.5);
  Value line = n.b.add(n.b.mul(x, alpha), beta);
  Value clipped = n.b.binary<onnx::MinOp>(n.b.binary<onnx::MaxOp>(line, zero(n, x)), n.b.scalar(x, 1));
  if (alpha <= 0) return {clipped};
  Value above = n.b.binary<onnx::GreaterOp>(x, n.b.scalar(x, -beta / alpha));
  Value below = n.b.binary<onnx::LessOp>(x, n.b.scalar(x, (1 - beta) / alpha));
  return {n.b.where(n.b.binary<onnx::AndOp>(above, below), line, n.b.unary<onnx::StopGradientOp>(clipped))};
}
// 0 up to -3, x from 3 on, x (x + 3) / 6 strictly between.
Values hardSwish(Node &n) {
  Value x = n.in(0), middle = n.b.mul(x, n.b.add(n.b.mul(x, 1.0 / 6), 0.5));
  Value low = n.b.binary<onnx::LessOrEqualOp>(x, n.b.scalar(x, -3));
  Value high = n.b.binary<onnx::GreaterOrEqualOp>(x, n.b.scalar(x, 3));
  return {n.b.where(low, zero(n, x), n.b.where(high, x, middle))};
}

// max(x, 0) + log1p(e^-|x|). -|x| is written as a choice whose derivative at 0 is 1: with 0 of max(x, 0) the sum is
// 1/2.
Value softplusOf(Node &n, Value x) {
  Value below = n.b.binary<onnx::LessOrEqualOp>(x, zero(n, x));
  Value decay = n.b.unary<onnx::ExpOp>(n.b.where(below, x, n.b.unary<onnx::NegOp>(x)));
  return n.b.add(positive(n, x), n.b.unary<onnx::Log1pOp>(decay));
}
Values softplus(Node &n) { return {softplusOf(n, n.in(0))}; }
Values mish(Node &n) { return {n.b.mul(n.in(0), n.b.unary<onnx::TanhOp>(softplusOf(n, n.in(0))))}; }
Values softsign(Node &n) { return {n.b.div(n.in(0), n.b.add(n.b.unary<onnx::AbsOp>(n.in(0)), 1))}; }
Values swish(Node &n) { return {n.b.mul(n.in(0), n.b.unary<onnx::SigmoidOp>(n.b.mul(n.in(0), n.real("alpha", 1))))}; }

// Before opset 13 the operand is seen as a matrix cut at `axis` (default 1); from 13 on `axis` (default -1) alone
// counts.
Dims softmaxAxes(Node &n) {
  int64_t rank = rankOf(n.in(0));
  if (n.version() >= 13) return {n.axis(n.integer("axis", -1), rank)};
  Dims axes;
  for (int64_t a = n.axis(n.integer("axis", 1), rank); a < rank; ++a) axes.push_back(a);
  return axes;
}
// x minus its maximum; the maximum only guards against overflow and takes no gradient.
Value shifted(Node &n, Value x, ArrayRef<int64_t> axes) {
  return n.b.sub(x, n.b.unary<onnx::StopGradientOp>(n.b.reduceMax(x, axes, true)));
}
Value wide(Node &n, Value x) {
  return elementOf(x).getIntOrFloatBitWidth() < 32 ? n.b.cast(x, n.b.builder.getF32Type()) : x;
}
Values softmax(Node &n) {
  Dims axes = softmaxAxes(n);
  Value e = n.b.unary<onnx::ExpOp>(shifted(n, wide(n, n.in(0)), axes));
  return {n.b.cast(n.b.div(e, n.b.reduceSum(e, axes, true)), elementOf(n.in(0)))};
}
Values logSoftmax(Node &n) {
  Dims axes = softmaxAxes(n);
  Value d = shifted(n, wide(n, n.in(0)), axes);
  Value total = n.b.reduceSum(n.b.unary<onnx::ExpOp>(d), axes, true);
  return {n.b.cast(n.b.sub(d, n.b.unary<onnx::LogOp>(total)), elementOf(n.in(0)))};
}

} // namespace

void addActivations(Rules &rules) {
  rules.addPerElement("Gelu", gelu);
  rules.addPerElement("Gelu", gelu, "com.microsoft");
  rules.addPerElement("BiasGelu", biasGelu, "com.microsoft");
  rules.addPerElement("FastGelu", fastGelu, "com.microsoft");
  rules.addPerElement("QuickGelu", quickGelu, "com.microsoft");
  rules.addPerElement("LeakyRelu", leakyRelu);
  rules.addPerElement("PRelu", pRelu);
  rules.addPerElement("ThresholdedRelu", thresholdedRelu);
  rules.addPerElement("Elu", elu);
  rules.addPerElement("Celu", celu);
  rules.addPerElement("Selu", selu);
  rules.addPerElement("HardSigmoid", hardSigmoid);
  rules.addPerElement("HardSwish", hardSwish);
  rules.addPerElement("Softplus", softplus);
  rules.addPerElement("Mish", mish);
  rules.addPerElement("Softsign", softsign);
  rules.addPerElement("Swish", swish);
  rules.add("Softmax", softmax);
  rules.add("LogSoftmax", logSoftmax);
}

} // namespace cleave::normalize
