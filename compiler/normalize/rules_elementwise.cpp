// ONNX elementwise operators: numpy broadcasting becomes explicit.
#include "compiler/normalize/node.h"
#include <limits>
#include <numbers>

using namespace mlir;
namespace cleave::normalize {
namespace {

template <typename Op> Values unary(Node &n) { return {n.b.unary<Op>(n.in(0))}; }
// Rounding functions of integers are the identity.
template <typename Op> Values rounding(Node &n) { return {isFloatTensor(n.in(0)) ? n.b.unary<Op>(n.in(0)) : n.in(0)}; }
template <typename Op> Values binary(Node &n) { return {n.b.binary<Op>(n.in(0), n.in(1))}; }

template <typename Op> Value folded(Node &n) {
  Value result = n.in(0);
  for (size_t i = 1; i < n.inputs.size(); ++i) result = n.b.binary<Op>(result, n.in(i));
  return result;
}
template <typename Op> Values variadic(Node &n) { return {folded<Op>(n)}; }
Values meanOf(Node &n) { return {n.b.div(folded<onnx::AddOp>(n), double(n.inputs.size()))}; }

Values power(Node &n) {
  Value base = n.in(0), exponent = n.in(1);
  Type type = elementOf(base);
  if (!isFloatTensor(base) && isFloatTensor(exponent)) {
    Type wide = n.b.builder.getF64Type();
    return {n.b.cast(n.b.binary<onnx::PowOp>(n.b.cast(base, wide), n.b.cast(exponent, wide)), type)};
  }
  return {n.b.binary<onnx::PowOp>(base, n.b.cast(exponent, type))};
}

Values modulo(Node &n) {
  Value a = n.in(0), b = n.in(1);
  if (isFloatTensor(a) || n.integer("fmod", 0) == 0) return {n.b.binary<onnx::ModOp>(a, b)};
  return {n.b.sub(a, n.b.mul(b, n.b.div(a, b)))}; // the sign of a: division truncates
}

Values isInfinite(Node &n) {
  Value x = n.in(0), result = n.b.unary<onnx::IsInfOp>(x);
  bool negative = n.integer("detect_negative", 1), positive = n.integer("detect_positive", 1);
  if (negative && positive) return {result};
  if (!negative && !positive) return {n.b.splat(typeOf(result), 0)};
  Value side =
      positive ? n.b.binary<onnx::GreaterOp>(x, n.b.scalar(x, 0)) : n.b.binary<onnx::LessOp>(x, n.b.scalar(x, 0));
  return {n.b.binary<onnx::AndOp>(result, side)};
}

Values select(Node &n) { return {n.b.where(n.in(0), n.in(1), n.in(2))}; }
Values identity(Node &n) {
  if (Value given = n.op.getInputs()[0]; n.state.sequences.contains(given)) return {given};
  return {n.in(0)};
}

Values cast(Node &n) {
  Type to = elementTypeOf(n.b.builder.getContext(), [&] {
    switch (n.integer("to", 0)) { // TensorProto.DataType
    case 1:
      return plan::F32;
    case 2:
      return plan::U8;
    case 3:
      return plan::I8;
    case 4:
      return plan::U16;
    case 5:
      return plan::I16;
    case 6:
      return plan::I32;
    case 7:
      return plan::I64;
    case 9:
      return plan::BOOL;
    case 10:
      return plan::F16;
    case 11:
      return plan::F64;
    case 12:
      return plan::U32;
    case 13:
      return plan::U64;
    case 16:
      return plan::BF16;
    default:
      return plan::DTYPE_INVALID;
    }
  }());
  if (!to) n.fail("cannot cast to ONNX element type " + Twine(n.integer("to", 0)));
  return {n.b.cast(n.in(0), to)};
}
Values castLike(Node &n) { return {n.b.cast(n.in(0), elementOf(n.in(1)))}; }

Values clip(Node &n) {
  Value x = n.in(0);
  auto bound = [&](size_t input, StringRef name) -> Value {
    if (n.has(input)) return n.in(input);
    return n.attribute(name) ? n.b.scalar(x, n.real(name, 0)) : Value();
  };
  Value low = bound(1, "min"), high = bound(2, "max");
  if (!isFloatTensor(x)) {
    if (low) x = n.b.binary<onnx::MaxOp>(x, low);
    if (high) x = n.b.binary<onnx::MinOp>(x, high);
    return {x};
  }
  // On a bound the slope is 0, as PyTorch has it. A comparison with what is no number is false: it stays.
  if (low) x = n.b.where(n.b.binary<onnx::LessOrEqualOp>(x, low), low, x);
  if (high) x = n.b.where(n.b.binary<onnx::GreaterOrEqualOp>(x, high), high, x);
  return {x};
}

Values tangent(Node &n) { return {n.b.div(n.b.unary<onnx::SinOp>(n.in(0)), n.b.unary<onnx::CosOp>(n.in(0)))}; }
Values hyperbolicSine(Node &n) {
  Value x = n.in(0);
  return {n.b.mul(n.b.sub(n.b.unary<onnx::ExpOp>(x), n.b.unary<onnx::ExpOp>(n.b.unary<onnx::NegOp>(x))), 0.5)};
}
Values hyperbolicCosine(Node &n) {
  Value x = n.in(0);
  return {n.b.mul(n.b.add(n.b.unary<onnx::ExpOp>(x), n.b.unary<onnx::ExpOp>(n.b.unary<onnx::NegOp>(x))), 0.5)};
}
// sign(x) log1p(m + m^2 / (1 + sqrt(m^2 + 1))), m = |x|; sign(x) (log m + log 2) where m^2 + 1 is m^2 and may overflow.
Values areaSine(Node &n) {
  Value x = n.in(0), zero = n.b.scalar(x, 0), isNegative = n.b.binary<onnx::LessOp>(x, zero);
  Value magnitude = n.b.where(isNegative, n.b.unary<onnx::NegOp>(x), x);
  Value isLarge = n.b.binary<onnx::GreaterOp>(magnitude, n.b.scalar(x, 1e4));
  Value small = n.b.where(isLarge, zero, magnitude), large = n.b.where(isLarge, magnitude, n.b.scalar(x, 1));
  Value square = n.b.mul(small, small);
  Value root = n.b.unary<onnx::SqrtOp>(n.b.add(square, 1));
  Value near = n.b.unary<onnx::Log1pOp>(n.b.add(small, n.b.div(square, n.b.add(root, 1))));
  Value far = n.b.add(n.b.unary<onnx::LogOp>(large), std::numbers::ln2);
  Value size = n.b.where(isLarge, far, near);
  return {n.b.where(isNegative, n.b.unary<onnx::NegOp>(size), size)};
}
// log1p(t + sqrt t sqrt(t + 2)), t = x - 1; log x + log 2 where x^2 - 1 is x^2 and may overflow.
Values areaCosine(Node &n) {
  Value x = n.in(0), isLarge = n.b.binary<onnx::GreaterOp>(x, n.b.scalar(x, 1e4));
  Value near = n.b.sub(n.b.where(isLarge, n.b.scalar(x, 2), x), 1);
  Value root = n.b.mul(n.b.unary<onnx::SqrtOp>(near), n.b.unary<onnx::SqrtOp>(n.b.add(near, 2)));
  Value far = n.b.add(n.b.unary<onnx::LogOp>(n.b.where(isLarge, x, n.b.scalar(x, 1))), std::numbers::ln2);
  return {n.b.where(isLarge, far, n.b.unary<onnx::Log1pOp>(n.b.add(near, root)))};
}
Values areaTangent(Node &n) {
  Value x = n.in(0);
  return {n.b.mul(n.b.sub(n.b.unary<onnx::Log1pOp>(x), n.b.unary<onnx::Log1pOp>(n.b.unary<onnx::NegOp>(x))), 0.5)};
}

} // namespace

void addElementwise(Rules &rules) {
  rules.add("Neg", unary<onnx::NegOp>);
  rules.add("Abs", unary<onnx::AbsOp>);
  rules.add("Sign", unary<onnx::SignOp>);
  rules.add("Exp", unary<onnx::ExpOp>);
  rules.add("Log", unary<onnx::LogOp>);
  rules.add("Sqrt", unary<onnx::SqrtOp>);
  rules.add("Reciprocal", unary<onnx::ReciprocalOp>);
  rules.add("Tanh", unary<onnx::TanhOp>);
  rules.add("Sigmoid", unary<onnx::SigmoidOp>);
  rules.add("Erf", unary<onnx::ErfOp>);
  rules.add("Sin", unary<onnx::SinOp>);
  rules.add("Cos", unary<onnx::CosOp>);
  rules.add("Relu", unary<onnx::ReluOp>);
  rules.add("Floor", rounding<onnx::FloorOp>);
  rules.add("Ceil", rounding<onnx::CeilOp>);
  rules.add("Round", rounding<onnx::RoundOp>);
  rules.add("Not", unary<onnx::NotOp>);
  rules.add("BitwiseNot", unary<onnx::NotOp>);
  rules.add("IsNaN", unary<onnx::IsNaNOp>);
  rules.add("IsInf", isInfinite);
  rules.add("Tan", tangent);
  rules.add("Sinh", hyperbolicSine);
  rules.add("Cosh", hyperbolicCosine);
  rules.add("Asinh", areaSine);
  rules.add("Acosh", areaCosine);
  rules.add("Atanh", areaTangent);
  rules.add("Add", binary<onnx::AddOp>);
  rules.add("Sub", binary<onnx::SubOp>);
  rules.add("Mul", binary<onnx::MulOp>);
  rules.add("Div", binary<onnx::DivOp>);
  rules.add("Pow", power);
  rules.add("Mod", modulo);
  rules.add("And", binary<onnx::AndOp>);
  rules.add("Or", binary<onnx::OrOp>);
  rules.add("Xor", binary<onnx::XorOp>);
  rules.add("BitwiseAnd", binary<onnx::AndOp>);
  rules.add("BitwiseOr", binary<onnx::OrOp>);
  rules.add("BitwiseXor", binary<onnx::XorOp>);
  rules.add("Equal", binary<onnx::EqualOp>);
  rules.add("Less", binary<onnx::LessOp>);
  rules.add("LessOrEqual", binary<onnx::LessOrEqualOp>);
  rules.add("Greater", binary<onnx::GreaterOp>);
  rules.add("GreaterOrEqual", binary<onnx::GreaterOrEqualOp>);
  rules.add("Max", variadic<onnx::MaxOp>);
  rules.add("Min", variadic<onnx::MinOp>);
  rules.add("Sum", variadic<onnx::AddOp>);
  rules.add("Mean", meanOf);
  rules.add("Where", select);
  rules.add("Identity", identity);
  rules.add("Cast", cast);
  rules.add("CastLike", castLike);
  rules.add("Clip", clip);
}

} // namespace cleave::normalize
