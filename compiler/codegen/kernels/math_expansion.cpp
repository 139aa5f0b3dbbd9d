#include "compiler/codegen/kernels/math_expansion.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include <limits>

using namespace mlir;
namespace cleave::codegen {
namespace {

// Scalar f32 and i32 arithmetic, as written on paper.
class F32 {
public:
  F32(OpBuilder &builder, Location loc, bool fuses) : builder(builder), loc(loc), fuses(fuses) {}

  Value number(double value) { return make<arith::ConstantOp>(builder.getF32FloatAttr(static_cast<float>(value))); }
  Value integer(uint32_t value) {
    return make<arith::ConstantOp>(builder.getIntegerAttr(builder.getI32Type(), APInt(32, value)));
  }
  Value add(Value a, Value b) { return make<arith::AddFOp>(a, b); }
  Value sub(Value a, Value b) { return make<arith::SubFOp>(a, b); }
  Value mul(Value a, Value b) { return make<arith::MulFOp>(a, b); }
  Value div(Value a, Value b) { return make<arith::DivFOp>(a, b); }
  Value muladd(Value a, Value b, Value c) { return fuses ? make<math::FmaOp>(a, b, c) : add(mul(a, b), c); }
  Value abs(Value a) { return make<math::AbsFOp>(a); }
  Value copySign(Value magnitude, Value sign) { return make<math::CopySignOp>(magnitude, sign); }
  Value addi(Value a, Value b) { return make<arith::AddIOp>(a, b); }
  Value subi(Value a, Value b) { return make<arith::SubIOp>(a, b); }
  Value andi(Value a, Value b) { return make<arith::AndIOp>(a, b); }
  Value ori(Value a, Value b) { return make<arith::OrIOp>(a, b); }
  Value shl(Value a, uint32_t bits) { return make<arith::ShLIOp>(a, integer(bits)); }
  Value shr(Value a, uint32_t bits) { return make<arith::ShRUIOp>(a, integer(bits)); }
  Value toBits(Value a) { return make<arith::BitcastOp>(builder.getI32Type(), a); }
  Value fromBits(Value a) { return make<arith::BitcastOp>(builder.getF32Type(), a); }
  Value toFloat(Value a) { return make<arith::SIToFPOp>(builder.getF32Type(), a); }
  Value compare(arith::CmpFPredicate predicate, Value a, Value b) { return make<arith::CmpFOp>(predicate, a, b); }
  Value less(Value a, Value b) { return compare(arith::CmpFPredicate::OLT, a, b); }
  Value greater(Value a, Value b) { return compare(arith::CmpFPredicate::OGT, a, b); }
  Value equal(Value a, Value b) { return compare(arith::CmpFPredicate::OEQ, a, b); }
  Value select(Value condition, Value a, Value b) { return make<arith::SelectOp>(condition, a, b); }
  Value sqrt(Value a) { return make<math::SqrtOp>(a); }
  // Horner's rule, highest power first.
  Value polynomial(Value x, std::initializer_list<double> coefficients) {
    Value result;
    for (double c : coefficients) result = result ? muladd(result, x, number(c)) : number(c);
    return result;
  }

private:
  template <typename Op, typename... Args> Value make(Args &&...args) {
    return Op::create(builder, loc, std::forward<Args>(args)...).getResult();
  }
  OpBuilder &builder;
  Location loc;
  bool fuses;
};

constexpr double infinity = std::numeric_limits<double>::infinity();

// e^x = 2^n e^r, n the nearest integer to x / ln 2, |r| < 0.35; polynomial of Cephes' expf. n comes from adding
// 1.5 * 2^23, which leaves it in the low bits. The exponent is set in two halves so that both ends of the range work.
Value expandExp(F32 &f, Value x) {
  Value magic = f.number(12582912.0);
  Value shifted = f.muladd(x, f.number(1.44269504088896341), magic);
  Value n = f.sub(shifted, magic);
  Value r = f.muladd(n, f.number(-0.693359375), x);
  r = f.muladd(n, f.number(2.12194440e-4), r);
  Value p = f.polynomial(
      r, {1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1});
  Value y = f.add(f.muladd(f.mul(r, r), p, r), f.number(1.0));
  // 2^(n-1), then times 2: n = 128 is still in range.
  Value exponent = f.shl(f.addi(f.toBits(shifted), f.integer(126u - 0x4B400000u)), 23);
  Value scaled = f.mul(f.mul(y, f.fromBits(exponent)), f.number(2.0));
  Value low = f.select(f.less(x, f.number(-87.3)), f.number(0), scaled);
  return f.select(f.greater(x, f.number(88.7228394)), f.number(infinity), low);
}

// log x = log m + e ln 2 with m in [sqrt 1/2, sqrt 2); polynomial of Cephes' logf.
Value expandLog(F32 &f, Value x) {
  Value tiny = f.less(x, f.number(1.17549435e-38));
  Value normal = f.select(tiny, f.mul(x, f.number(8388608.0)), x);
  Value bits = f.toBits(normal);
  Value e = f.toFloat(f.subi(f.shr(bits, 23), f.integer(126)));
  e = f.select(tiny, f.sub(e, f.number(23.0)), e);
  Value m = f.fromBits(f.ori(f.andi(bits, f.integer(0x007fffff)), f.integer(0x3f000000))); // [1/2, 1)
  Value small = f.less(m, f.number(0.707106781186547524));
  e = f.select(small, f.sub(e, f.number(1.0)), e);
  m = f.sub(f.select(small, f.add(m, m), m), f.number(1.0));
  Value z = f.mul(m, m);
  Value p = f.polynomial(m, {7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                             -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1});
  Value y = f.mul(f.mul(m, z), p);
  y = f.muladd(e, f.number(-2.12194440e-4), y);
  y = f.muladd(z, f.number(-0.5), y);
  Value result = f.muladd(e, f.number(0.693359375), f.add(m, y));
  // The ends: log inf = inf, log 0 = -inf, log of a negative number or NaN = NaN.
  result = f.select(f.equal(x, f.number(infinity)), x, result);
  result = f.select(f.equal(x, f.number(0)), f.number(-infinity), result);
  Value isNumber = f.compare(arith::CmpFPredicate::OGE, x, f.number(0));
  return f.select(isNumber, result, f.number(std::numeric_limits<double>::quiet_NaN()));
}

// log(1+x) = log(u) * x / (u - 1) with u = 1 + x rounded: the rounding error cancels (Kahan).
Value expandLog1p(F32 &f, Value x) {
  Value one = f.number(1.0), u = f.add(x, one);
  Value exact = f.equal(u, one), infinite = f.equal(u, f.number(infinity));
  Value corrected = f.mul(expandLog(f, u), f.div(x, f.sub(u, one)));
  return f.select(exact, x, f.select(infinite, u, corrected));
}

// x P(x^2) / Q(x^2) on [-3.92, 3.92], a least-squares fit of the relative error (6e-8 before rounding); erf is 1 beyond
// in f32. Cheaper by half than exp-based forms with 1 ulp, and gelu needs no more.
Value expandErf(F32 &f, Value x) {
  Value bound = f.number(3.92), low = f.number(-3.92), one = f.number(1.0);
  Value clamped = f.select(f.greater(x, bound), bound, f.select(f.less(x, low), low, x)); // NaN stays
  Value s = f.mul(clamped, clamped);
  Value p = f.polynomial(s, {2.1111337634592826e-06, 2.8483052887090293e-04, 3.6416586333683637e-03,
                             5.2374884641337600e-02, 1.8715346671525143e-01, 1.1283791546365365});
  Value q = f.polynomial(s, {3.8720818936068000e-05, 1.1375799742371956e-03, 1.4718587687386315e-02,
                             1.1281583555012847e-01, 4.9919340536371090e-01, 1.0});
  Value result = f.div(f.mul(clamped, p), q);
  return f.select(f.greater(f.abs(result), one), f.copySign(one, x), result);
}

// A rational function on [-7.9, 7.9], the coefficients of Eigen's generic tanh; beyond, tanh is 1 in f32.
Value expandTanh(F32 &f, Value x) {
  Value bound = f.number(7.90531110763549805), low = f.number(-7.90531110763549805);
  Value clamped = f.select(f.greater(x, bound), bound, f.select(f.less(x, low), low, x)); // NaN stays
  Value s = f.mul(clamped, clamped);
  Value p = f.polynomial(s, {-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
                             1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03});
  Value q = f.polynomial(s, {1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03});
  return f.select(f.less(f.abs(x), f.number(0.0004)), x, f.div(f.mul(clamped, p), q));
}

// Powers with a constant exponent that need no logarithm; null for others.
Value expandPower(F32 &f, Value x, Value exponent) {
  FloatAttr attribute;
  if (!matchPattern(exponent, m_Constant(&attribute))) return {};
  double e = attribute.getValueAsDouble();
  Value square;
  auto times = [&](Value a, Value b) { return f.mul(a, b); };
  if (e == 1) return x;
  if (e == 2) return times(x, x);
  if (e == 3) return times(times(x, x), x);
  if (e == 4) return square = times(x, x), times(square, square);
  if (e == -1) return f.div(f.number(1), x);
  if (e == -2) return f.div(f.number(1), times(x, x));
  return {};
}

bool isNarrow(Type type) { return isa<FloatType>(type) && type.getIntOrFloatBitWidth() < 32; }

// Functions of 16-bit floats are those of f32.
void widen(Operation *op) {
  OpBuilder builder(op);
  Type narrow = op->getResult(0).getType(), wide = builder.getF32Type();
  for (OpOperand &operand : op->getOpOperands())
    if (isNarrow(operand.get().getType()))
      operand.set(arith::ExtFOp::create(builder, op->getLoc(), wide, operand.get()));
  op->getResult(0).setType(wide);
  builder.setInsertionPointAfter(op);
  Value back = arith::TruncFOp::create(builder, op->getLoc(), narrow, op->getResult(0));
  op->getResult(0).replaceAllUsesExcept(back, back.getDefiningOp());
}

Value expand(Operation *op, bool fuses) {
  OpBuilder builder(op);
  F32 f(builder, op->getLoc(), fuses);
  Value x = op->getOperand(0);
  if (!x.getType().isF32()) return {};
  if (isa<math::ExpOp>(op)) return expandExp(f, x);
  if (isa<math::LogOp>(op)) return expandLog(f, x);
  if (isa<math::Log1pOp>(op)) return expandLog1p(f, x);
  if (isa<math::ErfOp>(op)) return expandErf(f, x);
  if (isa<math::TanhOp>(op)) return expandTanh(f, x);
  if (isa<math::PowFOp>(op)) return expandPower(f, x, op->getOperand(1));
  return {};
}

} // namespace

void expandMath(Operation *root, bool fuses) {
  SmallVector<Operation *> found;
  root->walk([&](Operation *op) {
    if (isa<math::MathDialect>(op->getDialect())) found.push_back(op);
  });
  for (Operation *op : found) {
    if (isNarrow(op->getResult(0).getType())) widen(op);
    if (Value replacement = expand(op, fuses)) {
      op->getResult(0).replaceAllUsesWith(replacement);
      op->erase();
    }
  }
}

} // namespace cleave::codegen
