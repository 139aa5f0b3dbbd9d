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
Value withSign(Node &n, Value x, Value size) {
  return n.b.where(n.b.binary<onnx::LessOp>(x, n.b.scalar(x, 0)), n.b.unary<onnx::NegOp>(size), size);
}
Value magnitudeOf(Node &n, Value x) {
  return n.b.where(n.b.binary<onnx::LessOp>(x, n.b.scalar(x, 0)), n.b.unary<onnx::NegOp>(x), x);
}
// sign(x) log1p(m + m^2 / (1 + sqrt(m^2 + 1))), m = |x|; sign(x) (log m + log 2) where m^2 + 1 is m^2 and may overflow.
Values areaSine(Node &n) {
  Value x = n.in(0), zero = n.b.scalar(x, 0), magnitude = magnitudeOf(n, x);
  Value isLarge = n.b.binary<onnx::GreaterOp>(magnitude, n.b.scalar(x, 1e4));
  Value small = n.b.where(isLarge, zero, magnitude), large = n.b.where(isLarge, magnitude, n.b.scalar(x, 1));
  Value square = n.b.mul(small, small);
  Value root = n.b.unary<onnx::SqrtOp>(n.b.add(square, 1));
  Value near = n.b.unary<onnx::Log1pOp>(n.b.add(small, n.b.div(square, n.b.add(root, 1))));
  Value far = n.b.add(n.b.unary<onnx::LogOp>(large), std::numbers::ln2);
  return {withSign(n, x, n.b.where(isLarge, far, near))};
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

// A value of 16 bits is computed with in f32.
Value inFullPrecision(Node &n, Value x) {
  return elementOf(x).getIntOrFloatBitWidth() < 32 ? n.b.cast(x, n.b.builder.getF32Type()) : x;
}
Value polynomial(Node &n, Value x, ArrayRef<double> coefficients) { // the highest power's first
  Value y = n.b.scalar(x, coefficients.front());
  for (double c : coefficients.drop_front()) y = n.b.add(n.b.mul(y, x), c);
  return y;
}
// For m >= 0, by the Cephes library's rational function, exact to double precision: up to 0.66 as it is, up to
// tan(3 pi / 8) as pi/4 + atan((m - 1) / (m + 1)), beyond it as pi/2 + atan(-1 / m). What a range does not use is
// computed of 1, so that no infinity comes into its derivative.
Value arcOf(Node &n, Value m) {
  Value one = n.b.scalar(m, 1);
  Value isMiddle = n.b.binary<onnx::GreaterOp>(m, n.b.scalar(m, 0.66));
  Value isFar = n.b.binary<onnx::GreaterOp>(m, n.b.scalar(m, 2.41421356237309504880));
  Value middle = n.b.where(isFar, one, m), far = n.b.where(isFar, m, one);
  Value x = n.b.where(isMiddle, n.b.div(n.b.sub(middle, 1), n.b.add(middle, 1)), middle);
  x = n.b.where(isFar, n.b.unary<onnx::NegOp>(n.b.unary<onnx::ReciprocalOp>(far)), x);
  Value z = n.b.mul(x, x);
  Value above = polynomial(n, z,
                           {-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
                            -1.228866684490136173410e2, -6.485021904942025371773e1});
  Value below = polynomial(n, z,
                           {1, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
                            4.853903996359136964868e2, 1.945506571482613964425e2});
  Value y = n.b.add(n.b.mul(x, n.b.div(n.b.mul(z, above), below)), x);
  Value start = n.b.where(isFar, n.b.scalar(m, std::numbers::pi / 2),
                          n.b.where(isMiddle, n.b.scalar(m, std::numbers::pi / 4), n.b.scalar(m, 0)));
  return n.b.add(start, y);
}
Values arcTangent(Node &n) {
  Value x = inFullPrecision(n, n.in(0));
  return {n.b.cast(withSign(n, x, arcOf(n, magnitudeOf(n, x))), elementOf(n.in(0)))};
}
// asin m = 2 atan(m / (1 + sqrt(1 - m) sqrt(1 + m))), acos m = 2 atan(sqrt(1 - m) / sqrt(1 + m)), m = |x|: with a root
// of each factor the slope at 1 is infinite, not infinity times 0.
Values arcSine(Node &n) {
  Value x = inFullPrecision(n, n.in(0)), m = magnitudeOf(n, x), one = n.b.scalar(x, 1);
  Value root = n.b.mul(n.b.unary<onnx::SqrtOp>(n.b.sub(one, m)), n.b.unary<onnx::SqrtOp>(n.b.add(m, 1)));
  Value size = n.b.mul(arcOf(n, n.b.div(m, n.b.add(root, 1))), 2);
  return {n.b.cast(withSign(n, x, size), elementOf(n.in(0)))};
}
Values arcCosine(Node &n) {
  Value x = inFullPrecision(n, n.in(0)), m = magnitudeOf(n, x), one = n.b.scalar(x, 1);
  Value size =
      n.b.mul(arcOf(n, n.b.div(n.b.unary<onnx::SqrtOp>(n.b.sub(one, m)), n.b.unary<onnx::SqrtOp>(n.b.add(m, 1)))), 2);
  Value isNegative = n.b.binary<onnx::LessOp>(x, n.b.scalar(x, 0));
  return {n.b.cast(n.b.where(isNegative, n.b.sub(n.b.scalar(x, std::numbers::pi), size), size), elementOf(n.in(0)))};
}

// By each bit of the distance: a shift by a power of two is a product with, or a quotient by, a known number. A
// distance of the type's width or more leaves 0.
Values bitShift(Node &n) {
  if (!n.attribute("direction")) n.fail("needs the attribute 'direction'");
  Value x = n.in(0), distance = n.in(1);
  n.b.broadcastTogether({&x, &distance});
  const unsigned width = elementOf(x).getIntOrFloatBitWidth();
  const bool isLeft = n.text("direction", "LEFT") == "LEFT";
  auto unsignedScalar = [&](uint64_t value) {
    auto type = RankedTensorType::get({}, elementOf(x));
    return n.b.constant(DenseElementsAttr::get(type, llvm::APInt(width, value)));
  };
  Value y = x;
  for (unsigned bit = 0; (1u << bit) < width; ++bit) {
    Value factor = unsignedScalar(uint64_t(1) << (1u << bit));
    Value isSet =
        n.b.binary<onnx::GreaterOp>(n.b.binary<onnx::AndOp>(distance, unsignedScalar(1u << bit)), unsignedScalar(0));
    y = n.b.where(isSet, isLeft ? n.b.mul(y, factor) : n.b.div(y, factor), y);
  }
  return {n.b.where(n.b.binary<onnx::LessOp>(distance, unsignedScalar(width)), y, unsignedScalar(0))};
}

} // namespace

void addElementwise(Rules &rules) {
  rules.addPerElement("Neg", unary<onnx::NegOp>);
  rules.addPerElement("Abs", unary<onnx::AbsOp>);
  rules.addPerElement("Sign", unary<onnx::SignOp>);
  rules.addPerElement("Exp", unary<onnx::ExpOp>);
  rules.addPerElement("Log", unary<onnx::LogOp>);
  rules.addPerElement("Sqrt", unary<onnx::SqrtOp>);
  rules.addPerElement("Reciprocal", unary<onnx::ReciprocalOp>);
  rules.addPerElement("Tanh", unary<onnx::TanhOp>);
  rules.addPerElement("Sigmoid", unary<onnx::SigmoidOp>);
  rules.addPerElement("Erf", unary<onnx::ErfOp>);
  rules.addPerElement("Sin", unary<onnx::SinOp>);
  rules.addPerElement("Cos", unary<onnx::CosOp>);
  rules.addPerElement("Relu", unary<onnx::ReluOp>);
  rules.addPerElement("Floor", rounding<onnx::FloorOp>);
  rules.addPerElement("Ceil", rounding<onnx::CeilOp>);
  rules.addPerElement("Round", rounding<onnx::RoundOp>);
  rules.addPerElement("Not", unary<onnx::NotOp>);
  rules.addPerElement("BitwiseNot", unary<onnx::NotOp>);
  rules.addPerElement("IsNaN", unary<onnx::IsNaNOp>);
  rules.addPerElement("IsInf", isInfinite);
  rules.add("Tan", tangent);
  rules.addPerElement("Sinh", hyperbolicSine);
  rules.addPerElement("Cosh", hyperbolicCosine);
  rules.add("Asinh", areaSine);
  rules.add("Acosh", areaCosine);
  rules.add("Atanh", areaTangent);
  rules.add("Atan", arcTangent);
  rules.add("Asin", arcSine);
  rules.add("Acos", arcCosine);
  rules.add("BitShift", bitShift);
  rules.addPerElement("Add", binary<onnx::AddOp>);
  rules.addPerElement("Sub", binary<onnx::SubOp>);
  rules.addPerElement("Mul", binary<onnx::MulOp>);
  rules.addPerElement("Div", binary<onnx::DivOp>);
  rules.addPerElement("Pow", power);
  rules.add("Mod", modulo);
  rules.addPerElement("And", binary<onnx::AndOp>);
  rules.addPerElement("Or", binary<onnx::OrOp>);
  rules.addPerElement("Xor", binary<onnx::XorOp>);
  rules.addPerElement("BitwiseAnd", binary<onnx::AndOp>);
  rules.addPerElement("BitwiseOr", binary<onnx::OrOp>);
  rules.addPerElement("BitwiseXor", binary<onnx::XorOp>);
  rules.addPerElement("Equal", binary<onnx::EqualOp>);
  rules.addPerElement("Less", binary<onnx::LessOp>);
  rules.addPerElement("LessOrEqual", binary<onnx::LessOrEqualOp>);
  rules.addPerElement("Greater", binary<onnx::GreaterOp>);
  rules.addPerElement("GreaterOrEqual", binary<onnx::GreaterOrEqualOp>);
  rules.addPerElement("Max", variadic<onnx::MaxOp>);
  rules.addPerElement("Min", variadic<onnx::MinOp>);
  rules.addPerElement("Sum", variadic<onnx::AddOp>);
  rules.addPerElement("Mean", meanOf);
  rules.addPerElement("Where", select);
  rules.addPerElement("Identity", identity);
  rules.addPerElement("Clip", clip);
}

} // namespace cleave::normalize
