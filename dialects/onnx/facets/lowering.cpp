// Lowering facet of the elementwise core ops: one result element from one element of each operand, as arith and math
// ops on scalars.
//
//   onnx.Relu %x : tensor<4xf32>    ->    %p = arith.cmpf olt, %e, 0.0;  %r = arith.select %p, 0.0, %e
//
// Elements are signless (an element of tensor<..xui8> comes as i8) and floats of 8 bits come as i8, their codes; what
// they mean is read from the op's own types. Floats narrower than f32 are computed in f32. Integer division never
// traps: x / 0 is x.
#include "dialects/onnx/facets/eight_bits.h"
#include "dialects/onnx/formula.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
namespace cleave::onnx {
namespace {

using arith::CmpFPredicate;
using arith::CmpIPredicate;

// Builds the scalar code of one op: operands of `type`, with the signedness of the op's tensor type.
class Emitter {
public:
  Emitter(OpBuilder &builder, Location loc, Value tensor, ValueRange elements) : builder(builder), loc(loc) {
    Type element = cast<ShapedType>(tensor.getType()).getElementType();
    isUnsigned = element.isUnsignedInteger() || element.isInteger(1);
    isFloat = isa<FloatType>(element);
    for (Value value : elements) operands.push_back(widened(value, element));
  }

  bool isFloat = false, isUnsigned = false;
  Value operand(size_t i) { return operands[i]; }
  size_t size() const { return operands.size(); }

  template <typename Op, typename... Args> Value make(Args &&...args) {
    return Op::create(builder, loc, std::forward<Args>(args)...).getOperation()->getResult(0);
  }
  Value number(Type type, double value) {
    return make<arith::ConstantOp>(
        isa<FloatType>(type) ? TypedAttr(builder.getFloatAttr(type, value))
                             : TypedAttr(builder.getIntegerAttr(
                                   type, APInt(type.getIntOrFloatBitWidth(), static_cast<uint64_t>(int64_t(value)),
                                               /*isSigned=*/false, /*implicitTrunc=*/true))));
  }
  Value number(double value) { return number(operand(0).getType(), value); }
  Value compare(CmpFPredicate floats, CmpIPredicate integers, Value a, Value b) {
    if (isFloat) return make<arith::CmpFOp>(floats, a, b);
    return make<arith::CmpIOp>(isUnsigned ? unsignedOf(integers) : integers, a, b);
  }
  Value select(Value condition, Value a, Value b) { return make<arith::SelectOp>(condition, a, b); }
  // Rounds back to a float narrower than f32.
  Value narrowed(Value value, Value result) {
    Type element = cast<ShapedType>(result.getType()).getElementType();
    if (!isNarrow(element) || !value.getType().isF32()) return value;
    return isEightBitFloat(element) ? toEightBits(builder, loc, value, element) : make<arith::TruncFOp>(element, value);
  }

private:
  static bool isNarrow(Type type) { return isa<FloatType>(type) && type.getIntOrFloatBitWidth() < 32; }
  Value widened(Value value, Type element) {
    if (isEightBitFloat(element)) return fromEightBits(builder, loc, value, element);
    return isNarrow(value.getType()) ? make<arith::ExtFOp>(builder.getF32Type(), value) : value;
  }
  static CmpIPredicate unsignedOf(CmpIPredicate predicate) {
    switch (predicate) {
    case CmpIPredicate::slt:
      return CmpIPredicate::ult;
    case CmpIPredicate::sle:
      return CmpIPredicate::ule;
    case CmpIPredicate::sgt:
      return CmpIPredicate::ugt;
    case CmpIPredicate::sge:
      return CmpIPredicate::uge;
    default:
      return predicate;
    }
  }
  OpBuilder &builder;
  Location loc;
  SmallVector<Value> operands;
};

template <typename FloatOp, typename IntegerOp> Value arithmetic(Emitter &e, Value a, Value b) {
  return e.isFloat ? e.make<FloatOp>(a, b) : e.make<IntegerOp>(a, b);
}

Value divide(Emitter &e) {
  Value a = e.operand(0), b = e.operand(1);
  if (e.isFloat) return e.make<arith::DivFOp>(a, b);
  Value one = e.number(1), isZero = e.make<arith::CmpIOp>(CmpIPredicate::eq, b, e.number(0));
  if (e.isUnsigned) return e.make<arith::DivUIOp>(a, e.select(isZero, one, b));
  Value isMinusOne = e.make<arith::CmpIOp>(CmpIPredicate::eq, b, e.number(-1)); // the smallest integer / -1 traps
  Value quotient = e.make<arith::DivSIOp>(a, e.select(e.make<arith::OrIOp>(isZero, isMinusOne), one, b));
  return e.select(isMinusOne, e.make<arith::SubIOp>(e.number(0), a), quotient);
}

Value remainder(Emitter &e) {
  Value a = e.operand(0), b = e.operand(1);
  if (e.isFloat) return e.make<arith::RemFOp>(a, b);
  Value zero = e.number(0), one = e.number(1), isZero = e.make<arith::CmpIOp>(CmpIPredicate::eq, b, zero);
  if (e.isUnsigned) return e.make<arith::RemUIOp>(a, e.select(isZero, one, b));
  Value isMinusOne = e.make<arith::CmpIOp>(CmpIPredicate::eq, b, e.number(-1));
  Value rest = e.make<arith::RemSIOp>(a, e.select(e.make<arith::OrIOp>(isZero, isMinusOne), one, b));
  Value nonzero = e.make<arith::CmpIOp>(CmpIPredicate::ne, rest, zero);
  Value opposite = e.make<arith::CmpIOp>(CmpIPredicate::slt, e.make<arith::XOrIOp>(rest, b), zero);
  Value wrong = e.make<arith::AndIOp>(nonzero, opposite);
  return e.select(wrong, e.make<arith::AddIOp>(rest, b), rest);
}

// Integer power by squaring has no vector form; exponents in exported graphs are small, so go through f64.
Value power(Emitter &e, OpBuilder &builder) {
  Value a = e.operand(0), b = e.operand(1);
  if (e.isFloat) return e.make<math::PowFOp>(a, b);
  Type wide = builder.getF64Type();
  auto real = [&](Value x) {
    return e.isUnsigned ? e.make<arith::UIToFPOp>(wide, x) : e.make<arith::SIToFPOp>(wide, x);
  };
  Value result = e.make<math::PowFOp>(real(a), real(b));
  return e.isUnsigned ? e.make<arith::FPToUIOp>(a.getType(), result) : e.make<arith::FPToSIOp>(a.getType(), result);
}

Value maximum(Emitter &e, Value a, Value b) {
  if (e.isFloat) return e.make<arith::MaximumFOp>(a, b);
  return e.isUnsigned ? e.make<arith::MaxUIOp>(a, b) : e.make<arith::MaxSIOp>(a, b);
}
Value minimum(Emitter &e, Value a, Value b) {
  if (e.isFloat) return e.make<arith::MinimumFOp>(a, b);
  return e.isUnsigned ? e.make<arith::MinUIOp>(a, b) : e.make<arith::MinSIOp>(a, b);
}

Value sign(Emitter &e) {
  Value x = e.operand(0), zero = e.number(0);
  Value negative = e.compare(CmpFPredicate::OLT, CmpIPredicate::slt, x, zero);
  Value positive = e.compare(CmpFPredicate::OGT, CmpIPredicate::sgt, x, zero);
  return e.select(positive, e.number(1), e.select(negative, e.number(-1), zero));
}

Value absolute(Emitter &e) {
  Value x = e.operand(0);
  if (e.isFloat) return e.make<math::AbsFOp>(x);
  return e.isUnsigned ? x : e.make<math::AbsIOp>(x);
}

Value convert(Emitter &e, OpBuilder &builder, Value result) {
  Value x = e.operand(0);
  Type from = x.getType(), to = cast<ShapedType>(result.getType()).getElementType();
  if (to.isInteger(1)) return e.compare(CmpFPredicate::UNE, CmpIPredicate::ne, x, e.number(0));
  if (isEightBitFloat(to)) to = builder.getF32Type(); // narrowed() does the rest
  if (isa<FloatType>(to)) {
    if (!e.isFloat) {
      // An integer goes straight to the type: through f32 it would be rounded twice only when `to` is narrower.
      return e.isUnsigned ? e.make<arith::UIToFPOp>(to, x) : e.make<arith::SIToFPOp>(to, x);
    }
    unsigned fromBits = from.getIntOrFloatBitWidth(), toBits = to.getIntOrFloatBitWidth();
    if (from == to) return x;
    return fromBits < toBits ? e.make<arith::ExtFOp>(to, x) : e.make<arith::TruncFOp>(to, x);
  }
  Type signless = builder.getIntegerType(to.getIntOrFloatBitWidth());
  if (e.isFloat)
    return to.isUnsignedInteger() ? e.make<arith::FPToUIOp>(signless, x) : e.make<arith::FPToSIOp>(signless, x);
  unsigned fromBits = from.getIntOrFloatBitWidth(), toBits = signless.getIntOrFloatBitWidth();
  if (fromBits == toBits) return x;
  if (fromBits > toBits) return e.make<arith::TruncIOp>(signless, x);
  return e.isUnsigned ? e.make<arith::ExtUIOp>(signless, x) : e.make<arith::ExtSIOp>(signless, x);
}

} // namespace

// CODE sees the emitter `e`, whose signedness is that of operand 0's tensor.
#define EMIT(OP, CODE)                                                                                                 \
  Value OP::emitScalar(OpBuilder &builder, Location loc, ValueRange elements) {                                        \
    Emitter e(builder, loc, getOperation()->getOperand(0), elements);                                                  \
    return e.narrowed(CODE, getOperation()->getResult(0));                                                             \
  }
#define EMIT_MATH(OP, MATH) EMIT(OP, e.make<MATH>(e.operand(0)))
#define EMIT_COMPARE(OP, FLOATS, INTEGERS)                                                                             \
  EMIT(OP, e.compare(CmpFPredicate::FLOATS, CmpIPredicate::INTEGERS, e.operand(0), e.operand(1)))

EMIT(NegOp, e.isFloat ? e.make<arith::NegFOp>(e.operand(0)) : e.make<arith::SubIOp>(e.number(0), e.operand(0)))
EMIT(AbsOp, absolute(e))
EMIT(SignOp, sign(e))
EMIT_MATH(ExpOp, math::ExpOp)
EMIT_MATH(LogOp, math::LogOp)
EMIT_MATH(Log1pOp, math::Log1pOp)
EMIT_MATH(SqrtOp, math::SqrtOp)
EMIT(RsqrtOp, e.make<arith::DivFOp>(e.number(1), e.make<math::SqrtOp>(e.operand(0))))
EMIT(ReciprocalOp, e.make<arith::DivFOp>(e.number(1), e.operand(0)))
EMIT_MATH(TanhOp, math::TanhOp)
EMIT(SigmoidOp, e.make<arith::DivFOp>(e.number(1),
                                      e.make<arith::AddFOp>(e.number(1),
                                                            e.make<math::ExpOp>(e.make<arith::NegFOp>(e.operand(0))))))
EMIT_MATH(ErfOp, math::ErfOp)
EMIT_MATH(SinOp, math::SinOp)
EMIT_MATH(CosOp, math::CosOp)
EMIT(FloorOp, e.isFloat ? e.make<math::FloorOp>(e.operand(0)) : e.operand(0))
EMIT(CeilOp, e.isFloat ? e.make<math::CeilOp>(e.operand(0)) : e.operand(0))
EMIT(RoundOp, e.isFloat ? e.make<math::RoundEvenOp>(e.operand(0)) : e.operand(0))
// A NaN stays a NaN: it is not below 0.
EMIT(ReluOp,
     e.select(e.compare(CmpFPredicate::OLT, CmpIPredicate::slt, e.operand(0), e.number(0)), e.number(0), e.operand(0)))
EMIT(StopGradientOp, e.operand(0))
EMIT(NotOp, e.make<arith::XOrIOp>(e.operand(0), e.number(-1)))
EMIT(IsNaNOp, e.make<arith::CmpFOp>(CmpFPredicate::UNO, e.operand(0), e.operand(0)))
EMIT(IsInfOp, e.make<arith::CmpFOp>(CmpFPredicate::OEQ, e.make<math::AbsFOp>(e.operand(0)),
                                    e.number(std::numeric_limits<double>::infinity())))
EMIT(CastOp, convert(e, builder, getY()))
EMIT(AddOp, (arithmetic<arith::AddFOp, arith::AddIOp>(e, e.operand(0), e.operand(1))))
EMIT(SubOp, (arithmetic<arith::SubFOp, arith::SubIOp>(e, e.operand(0), e.operand(1))))
EMIT(MulOp, (arithmetic<arith::MulFOp, arith::MulIOp>(e, e.operand(0), e.operand(1))))
EMIT(DivOp, divide(e))
EMIT(PowOp, power(e, builder))
EMIT(MaxOp, maximum(e, e.operand(0), e.operand(1)))
EMIT(MinOp, minimum(e, e.operand(0), e.operand(1)))
EMIT(ModOp, remainder(e))
EMIT(AndOp, e.make<arith::AndIOp>(e.operand(0), e.operand(1)))
EMIT(OrOp, e.make<arith::OrIOp>(e.operand(0), e.operand(1)))
EMIT(XorOp, e.make<arith::XOrIOp>(e.operand(0), e.operand(1)))
EMIT_COMPARE(EqualOp, OEQ, eq)
EMIT_COMPARE(LessOp, OLT, slt)
EMIT_COMPARE(LessOrEqualOp, OLE, sle)
EMIT_COMPARE(GreaterOp, OGT, sgt)
EMIT_COMPARE(GreaterOrEqualOp, OGE, sge)

Value WhereOp::emitScalar(OpBuilder &builder, Location loc, ValueRange elements) {
  return arith::SelectOp::create(builder, loc, elements[0], elements[1], elements[2]);
}

Value SumOp::emitScalar(OpBuilder &builder, Location loc, ValueRange elements) {
  Emitter e(builder, loc, getOperation()->getOperand(0), elements);
  Value total = e.operand(0);
  for (size_t i = 1; i < e.size(); ++i) total = arithmetic<arith::AddFOp, arith::AddIOp>(e, total, e.operand(i));
  return e.narrowed(total, getY());
}

} // namespace cleave::onnx
