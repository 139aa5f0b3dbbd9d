#include "compiler/codegen/kernels/philox.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <array>

using namespace mlir;
namespace cleave::codegen {

Value philoxUniform(OpBuilder &builder, Location loc, Value seed, Value step, int64_t stream, Value index) {
  Type i32 = builder.getI32Type(), i64 = builder.getI64Type();
  auto word = [&](uint32_t value) -> Value {
    return arith::ConstantOp::create(builder, loc, builder.getIntegerAttr(i32, APInt(32, value)));
  };
  auto wide = [&](uint64_t value) -> Value {
    return arith::ConstantOp::create(builder, loc, builder.getIntegerAttr(i64, APInt(64, value)));
  };
  auto low = [&](Value x) -> Value { return arith::TruncIOp::create(builder, loc, i32, x); };
  auto high = [&](Value x) -> Value { return low(arith::ShRUIOp::create(builder, loc, x, wide(32))); };
  auto product = [&](uint32_t factor, Value x) -> Value {
    return arith::MulIOp::create(builder, loc, wide(factor), arith::ExtUIOp::create(builder, loc, i64, x));
  };
  auto exclusiveOr = [&](Value a, Value b) -> Value { return arith::XOrIOp::create(builder, loc, a, b); };
  auto add = [&](Value a, uint32_t b) -> Value { return arith::AddIOp::create(builder, loc, a, word(b)); };

  Value indexHigh = arith::AndIOp::create(builder, loc, high(index), word(0xffff));
  Value microbatch = arith::ShLIOp::create(builder, loc, high(step), word(16));
  std::array<Value, 4> counter = {low(index), arith::OrIOp::create(builder, loc, indexHigh, microbatch), low(step),
                                  word(static_cast<uint32_t>(stream))};
  Value key0 = low(seed), key1 = high(seed);
  for (int round = 0; round < 10; ++round) {
    Value product0 = product(0xD2511F53u, counter[0]), product1 = product(0xCD9E8D57u, counter[2]);
    counter = {exclusiveOr(exclusiveOr(high(product1), counter[1]), key0), low(product1),
               exclusiveOr(exclusiveOr(high(product0), counter[3]), key1), low(product0)};
    key0 = add(key0, 0x9E3779B9u);
    key1 = add(key1, 0xBB67AE85u);
  }
  // 24 bits are an exact, non-negative i32.
  Value bits = arith::ShRUIOp::create(builder, loc, counter[0], word(8));
  Value scale = arith::ConstantOp::create(builder, loc, builder.getF32FloatAttr(0x1p-24f));
  return arith::MulFOp::create(builder, loc, arith::SIToFPOp::create(builder, loc, builder.getF32Type(), bits), scale);
}

} // namespace cleave::codegen
