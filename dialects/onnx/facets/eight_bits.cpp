#include "dialects/onnx/facets/eight_bits.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;
namespace cleave::onnx {
namespace {

using arith::CmpIPredicate;

// Unsigned words of 32 bits.
class Words {
public:
  Words(OpBuilder &builder, Location loc) : builder(builder), loc(loc), i32(builder.getI32Type()) {}
  template <typename Op, typename... Args> Value make(Args &&...args) {
    return Op::create(builder, loc, std::forward<Args>(args)...).getOperation()->getResult(0);
  }
  Value number(uint32_t value) { return make<arith::ConstantOp>(builder.getI32IntegerAttr(int32_t(value))); }
  Value add(Value a, Value b) { return make<arith::AddIOp>(a, b); }
  Value add(Value a, uint32_t b) { return add(a, number(b)); }
  Value bitAnd(Value a, uint32_t b) { return make<arith::AndIOp>(a, number(b)); }
  Value right(Value a, uint32_t by) { return make<arith::ShRUIOp>(a, number(by)); }
  Value left(Value a, uint32_t by) { return make<arith::ShLIOp>(a, number(by)); }
  Value select(CmpIPredicate is, Value a, uint32_t b, Value then, Value otherwise) {
    return make<arith::SelectOp>(make<arith::CmpIOp>(is, a, number(b)), then, otherwise);
  }
  Value asFloat(Value bits) { return make<arith::BitcastOp>(builder.getF32Type(), bits); }
  Value asBits(Value value) { return make<arith::BitcastOp>(i32, value); }

private:
  OpBuilder &builder;
  Location loc;
  Type i32;
};

struct Format {
  uint32_t fraction, bias, largest; // bits; of the exponent; the largest number as f32
};
Format formatOf(Type element) {
  if (isa<Float8E4M3FNType>(element)) return {3, 7, 0x43e00000};
  return {2, 15, 0x47600000};
}

} // namespace

Value toEightBits(OpBuilder &builder, Location loc, Value single, Type element) {
  Words w(builder, loc);
  const auto [fraction, bias, largest] = formatOf(element);
  const uint32_t dropped = 23 - fraction, unit = (128 - bias + dropped) << 23;
  Value bits = w.asBits(single), whole = w.bitAnd(bits, 0x7fffffff);
  Value magnitude = w.make<arith::MinUIOp>(whole, w.number(largest));
  Value odd = w.bitAnd(w.right(magnitude, dropped), 1);
  Value normal = w.right(w.add(w.add(magnitude, odd), ((bias - 127) << 23) + (1u << (dropped - 1)) - 1), dropped);
  Value rounded = w.make<arith::AddFOp>(w.asFloat(magnitude), w.asFloat(w.number(unit)));
  Value subnormal = w.add(w.asBits(rounded), 0 - unit);
  Value code = w.select(CmpIPredicate::ult, magnitude, (128 - bias) << 23, subnormal, normal);
  code = w.select(CmpIPredicate::ugt, whole, 0x7f800000, w.number(0x7f), code);
  code = w.make<arith::OrIOp>(code, w.bitAnd(w.right(bits, 24), 0x80));
  return w.make<arith::TruncIOp>(builder.getI8Type(), code);
}

Value fromEightBits(OpBuilder &builder, Location loc, Value code, Type element) {
  Words w(builder, loc);
  const auto [fraction, bias, most] = formatOf(element);
  const bool hasInfinity = isa<Float8E5M2Type>(element);
  code = w.make<arith::ExtUIOp>(builder.getI32Type(), code);
  Value magnitude = w.left(w.bitAnd(code, 0x7f), 23 - fraction), normal = w.add(magnitude, (127 - bias) << 23);
  Value unit = w.asFloat(w.number((128 - bias) << 23));
  Value subnormal = w.asBits(w.make<arith::SubFOp>(w.asFloat(w.add(normal, 1u << 23)), unit));
  Value value = w.select(CmpIPredicate::ult, magnitude, 1u << 23, subnormal, normal);
  // The largest exponent means infinity or NaN, or the last code alone is NaN.
  Value special = hasInfinity ? w.add(normal, (128 - 16) << 23) : w.number(0x7fc00000);
  value = w.select(CmpIPredicate::uge, magnitude, hasInfinity ? 0x1f << 23 : 0x7f << 20, special, value);
  return w.asFloat(w.make<arith::OrIOp>(value, w.left(w.bitAnd(code, 0x80), 24)));
}

} // namespace cleave::onnx
