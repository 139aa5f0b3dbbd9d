#include "compiler/attention/softmax_pattern.h"
#include "dialects/onnx/facets/rule_building.h"

using namespace mlir;

namespace cleave::attention {
namespace {

Value throughStops(Value value) {
  while (auto stop = value.getDefiningOp<onnx::StopGradientOp>()) value = stop.getX();
  return value;
}

// The value that `value` repeats along `axis` alone; null if it is no such broadcast.
Value repeatedAlong(Value value, int64_t axis) {
  auto broadcast = value.getDefiningOp<onnx::BroadcastOp>();
  if (!broadcast) return {};
  int64_t rank = static_cast<int64_t>(broadcast.getShape().size());
  if (static_cast<int64_t>(broadcast.getDims().size()) != rank - 1) return {};
  return llvm::is_contained(broadcast.getDims(), axis) ? Value() : broadcast.getX();
}

// The probabilities made from the exponentials and their sum, which is told.
Value matchDivision(onnx::ExpOp exp, int64_t axis, onnx::ReduceSumOp &sumOfRow) {
  Value e = exp.getY();
  auto isSum = [&](Value value) {
    auto sum = throughStops(value).getDefiningOp<onnx::ReduceSumOp>();
    const bool is = sum && sum.getX() == e && sum.getAxes().size() == 1 && sum.getAxes()[0] == axis;
    if (is) sumOfRow = sum;
    return is;
  };
  for (Operation *user : e.getUsers()) {
    if (auto div = dyn_cast<onnx::DivOp>(user)) {
      Value sum = repeatedAlong(div.getB(), axis);
      if (div.getA() == e && sum && isSum(sum)) return div.getY();
    }
    if (auto mul = dyn_cast<onnx::MulOp>(user)) {
      Value factor = repeatedAlong(mul.getA() == e ? mul.getB() : mul.getA(), axis);
      auto reciprocal = factor ? factor.getDefiningOp<onnx::ReciprocalOp>() : onnx::ReciprocalOp();
      if (reciprocal && isSum(reciprocal.getX())) return mul.getY();
    }
  }
  return {};
}

// p' if all that reads p is its guard.
Value matchGuard(Value p) {
  onnx::IsNaNOp isNaN;
  onnx::WhereOp where;
  for (Operation *user : p.getUsers()) {
    if (auto test = dyn_cast<onnx::IsNaNOp>(user); test && !isNaN)
      isNaN = test;
    else if (auto choice = dyn_cast<onnx::WhereOp>(user); choice && !where)
      where = choice;
    else
      return {};
  }
  bool guard = isNaN && where && where.getCondition() == isNaN.getY() && isNaN->hasOneUse() && where.getB() == p &&
               onnx::rules::isZero(where.getA());
  return guard ? where.getY() : Value();
}

} // namespace

std::optional<Softmax> matchSoftmax(onnx::ExpOp exp) {
  auto sub = exp.getX().getDefiningOp<onnx::SubOp>();
  auto shift = sub ? sub.getB().getDefiningOp<onnx::BroadcastOp>() : onnx::BroadcastOp();
  auto max = shift ? throughStops(shift.getX()).getDefiningOp<onnx::ReduceMaxOp>() : onnx::ReduceMaxOp();
  if (!max || max.getX() != sub.getA() || max.getAxes().size() != 1) return std::nullopt;
  Softmax softmax{.scores = sub.getA(), .probabilities = {}, .axis = max.getAxes()[0], .max = max, .sum = {}};
  if (!repeatedAlong(sub.getB(), softmax.axis)) return std::nullopt;
  softmax.probabilities = matchDivision(exp, softmax.axis, softmax.sum);
  if (!softmax.probabilities) return std::nullopt;
  if (Value guarded = matchGuard(softmax.probabilities)) {
    softmax.probabilities = guarded;
    softmax.zeroEmptyRows = true;
  }
  return softmax;
}

std::optional<CausalTable> matchCausalTable(Value value) {
  auto constant = value.getDefiningOp<onnx::ConstantOp>();
  auto type = cast<RankedTensorType>(value.getType());
  if (!constant || type.getRank() != 2 || type.getDimSize(0) != type.getDimSize(1) || type.getDimSize(0) < 2)
    return std::nullopt;
  SmallVector<double> entries;
  auto take = [&](auto values) {
    for (auto entry : values) entries.push_back(static_cast<double>(entry));
  };
  ElementsAttr data = constant.getValue();
  Type element = type.getElementType();
  // Tables of any size are plain data or a resource; both can be iterated as their own type.
  if (element.isF32()) {
    auto values = data.tryGetValues<float>();
    if (!values) return std::nullopt;
    take(*values);
  } else if (element.isInteger(1)) {
    auto values = data.tryGetValues<bool>();
    if (!values) return std::nullopt;
    take(*values);
  } else {
    return std::nullopt;
  }
  int64_t size = type.getDimSize(0);
  CausalTable table{entries[0], entries[1]};
  if (!(table.yes != table.no)) return std::nullopt;
  for (int64_t row = 0; row < size; ++row)
    for (int64_t column = 0; column < size; ++column)
      if (entries[row * size + column] != (column <= row ? table.yes : table.no)) return std::nullopt;
  return table;
}

bool countsUp(Value value) {
  if (auto iota = value.getDefiningOp<onnx::IotaOp>()) return cast<RankedTensorType>(iota.getType()).getRank() == 1;
  auto constant = value.getDefiningOp<onnx::ConstantOp>();
  auto type = cast<RankedTensorType>(value.getType());
  if (!constant || type.getRank() != 1 || !type.getElementType().isInteger(64)) return false;
  auto entries = constant.getValue().tryGetValues<int64_t>();
  if (!entries) return false;
  int64_t next = 0;
  for (int64_t entry : *entries)
    if (entry != next++) return false;
  return true;
}

} // namespace cleave::attention
