#include "compiler/codegen/cuda/command_values.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
namespace cleave::codegen {

Type sumType(Type element) {
  bool isNarrow = isa<FloatType>(element) && element.getIntOrFloatBitWidth() < 32;
  return isNarrow ? Float32Type::get(element.getContext()) : element;
}
Value zeroOf(GridBuilder &grid, Type type) { return grid.constant(cast<TypedAttr>(grid.here().getZeroAttr(type))); }
Value add(GridBuilder &grid, Value a, Value b) {
  if (isa<FloatType>(a.getType())) return grid.make<arith::AddFOp>(a, b);
  return grid.make<arith::AddIOp>(a, b);
}
Value widened(GridBuilder &grid, Value x) {
  Type wide = sumType(x.getType());
  return wide == x.getType() ? x : grid.make<arith::ExtFOp>(wide, x);
}
Value narrowed(GridBuilder &grid, Value x, Type element) {
  return element == x.getType() ? x : grid.make<arith::TruncFOp>(element, x);
}

void leaveFault(GridBuilder &grid, Value condition, Value word, Value code) {
  grid.when(condition, [&] {
    Type i32 = grid.here().getI32Type();
    Value known = grid.load(word, i32, grid.number(0)).front();
    Value none = grid.equal(known, grid.constant(grid.here().getI32IntegerAttr(0)));
    grid.when(none, [&] { grid.store(grid.make<arith::TruncIOp>(i32, code), word, grid.number(0)); });
  });
}

Value globalRow(GridBuilder &grid, Value indices, const IndexedRows &rows, Value position) {
  Type i64 = grid.here().getI64Type(), i32 = grid.here().getI32Type();
  Value raw = grid.load(indices, rows.isWide ? i64 : i32, position).front();
  if (!rows.isWide) raw = grid.make<arith::ExtSIOp>(i64, raw);
  Value isNegative = grid.less(raw, grid.number(0));
  return grid.select(isNegative, grid.sum(raw, grid.number(rows.globalRows)), raw);
}
Value isWithin(GridBuilder &grid, Value a, int64_t b) {
  return grid.make<arith::CmpIOp>(arith::CmpIPredicate::ult, a, grid.number(b));
}
Value negation(GridBuilder &grid, Value a) {
  return grid.make<arith::XOrIOp>(a, grid.constant(grid.here().getBoolAttr(true)));
}

} // namespace cleave::codegen
