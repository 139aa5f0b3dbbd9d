#include "compiler/attention/softmax_pattern.h"
#include "dialects/onnx/facets/rule_building.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/TypeSwitch.h"
#include <functional>

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

std::optional<CausalTable> tableOfNumber(SplatElementsAttr splat) {
  double number = 0;
  if (auto value = dyn_cast<FloatAttr>(splat.getSplatValue<Attribute>()))
    number = value.getValueAsDouble();
  else if (auto integer = dyn_cast<IntegerAttr>(splat.getSplatValue<Attribute>()))
    number = integer.getType().isInteger(1) ? integer.getValue().getBoolValue() : integer.getValue().getSExtValue();
  else
    return std::nullopt;
  return CausalTable{number, number};
}

// A constant that has one value on and below the diagonal and another above it; the shape is square, at least 2 x 2. A
// splat has the same value twice: Where and Add combine it with a mask.
std::optional<CausalTable> tableOfConstant(onnx::ConstantOp constant) {
  auto type = cast<RankedTensorType>(constant.getType());
  SmallVector<double> entries;
  auto take = [&](auto values) {
    for (auto entry : values) entries.push_back(static_cast<double>(entry));
  };
  ElementsAttr data = constant.getValue();
  if (auto splat = dyn_cast<SplatElementsAttr>(data)) return tableOfNumber(splat);
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
  for (int64_t row = 0; row < size; ++row)
    for (int64_t column = 0; column < size; ++column)
      if (entries[row * size + column] != (column <= row ? table.kept : table.masked)) return std::nullopt;
  return table;
}

// Increasing integers along one dimension.
SmallVector<int64_t> risingNumbers(Value value) {
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getRank() != 1) return {};
  SmallVector<int64_t> numbers;
  if (value.getDefiningOp<onnx::IotaOp>()) {
    llvm::append_range(numbers, llvm::seq<int64_t>(0, type.getDimSize(0)));
  } else if (auto constant = value.getDefiningOp<onnx::ConstantOp>(); constant && type.getElementType().isInteger(64)) {
    if (auto entries = constant.getValue().tryGetValues<int64_t>()) llvm::append_range(numbers, *entries);
  }
  for (size_t i = 1; i < numbers.size(); ++i)
    if (numbers[i] <= numbers[i - 1]) return {};
  return numbers;
}

// A comparison of numbers along the rows with numbers along the columns. In each row it changes once at most, so three
// places say whether it does so behind the diagonal.
std::optional<CausalTable> tableOfComparison(Value a, Value b, llvm::function_ref<bool(int64_t, int64_t)> holds) {
  auto left = a.getDefiningOp<onnx::BroadcastOp>(), right = b.getDefiningOp<onnx::BroadcastOp>();
  if (!left || !right || left.getDims().size() != 1 || right.getDims().size() != 1 ||
      left.getDims()[0] == right.getDims()[0])
    return std::nullopt;
  const bool rowsFirst = left.getDims()[0] == 0;
  SmallVector<int64_t> rows = risingNumbers((rowsFirst ? left : right).getX()),
                       columns = risingNumbers((rowsFirst ? right : left).getX());
  if (rows.size() < 2 || rows.size() != columns.size()) return std::nullopt;
  auto at = [&](size_t row, size_t column) {
    return rowsFirst ? holds(rows[row], columns[column]) : holds(columns[column], rows[row]);
  };
  const bool yes = at(0, 0), no = at(0, 1);
  for (size_t row = 0; row < rows.size(); ++row)
    if (at(row, 0) != yes || at(row, row) != yes ||
        (row + 1 < rows.size() && (at(row, row + 1) != no || at(row, rows.size() - 1) != no)))
      return std::nullopt;
  return CausalTable{double(yes), double(no)};
}

// Both numbers of a table that is computed elementwise; they are equal in one that has but one number.
std::optional<CausalTable> tableOf(Value value) {
  auto both = [](Value a, Value b, llvm::function_ref<double(double, double)> of) -> std::optional<CausalTable> {
    auto x = tableOf(a), y = x ? tableOf(b) : std::nullopt;
    if (!y) return std::nullopt;
    return CausalTable{of(x->kept, y->kept), of(x->masked, y->masked)};
  };
  Operation *op = value.getDefiningOp();
  if (!op || cast<RankedTensorType>(value.getType()).getRank() != 2) return std::nullopt;
  return llvm::TypeSwitch<Operation *, std::optional<CausalTable>>(op)
      .Case([](onnx::ConstantOp constant) { return tableOfConstant(constant); })
      .Case([](onnx::LessOp op) { return tableOfComparison(op.getA(), op.getB(), std::less<>()); })
      .Case([](onnx::LessOrEqualOp op) { return tableOfComparison(op.getA(), op.getB(), std::less_equal<>()); })
      .Case([](onnx::GreaterOp op) { return tableOfComparison(op.getA(), op.getB(), std::greater<>()); })
      .Case([](onnx::GreaterOrEqualOp op) { return tableOfComparison(op.getA(), op.getB(), std::greater_equal<>()); })
      .Case([&](onnx::MulOp op) { return both(op.getA(), op.getB(), std::multiplies<>()); })
      .Case([&](onnx::AddOp op) { return both(op.getA(), op.getB(), std::plus<>()); })
      .Case([&](onnx::SubOp op) { return both(op.getA(), op.getB(), std::minus<>()); })
      .Case([](onnx::WhereOp op) -> std::optional<CausalTable> {
        auto condition = tableOf(op.getCondition()), a = tableOf(op.getA()), b = tableOf(op.getB());
        if (!condition || !a || !b) return std::nullopt;
        return CausalTable{condition->kept != 0 ? a->kept : b->kept, condition->masked != 0 ? a->masked : b->masked};
      })
      .Case([](onnx::CastOp op) -> std::optional<CausalTable> {
        // A condition alone: other conversions may round.
        if (!cast<RankedTensorType>(op.getX().getType()).getElementType().isInteger(1)) return std::nullopt;
        return tableOf(op.getX());
      })
      .Case([](onnx::NotOp op) -> std::optional<CausalTable> {
        auto table = tableOf(op.getX());
        if (!table || !cast<RankedTensorType>(op.getX().getType()).getElementType().isInteger(1)) return std::nullopt;
        return CausalTable{double(table->kept == 0), double(table->masked == 0)};
      })
      .Default([](Operation *) { return std::nullopt; });
}

} // namespace

func::FuncOp modelOf(ModuleOp module) {
  auto model = module.lookupSymbol<func::FuncOp>("model");
  if (!model) module.emitError("has no function @model: the normalize phase makes it");
  return model;
}

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
  auto type = cast<RankedTensorType>(value.getType());
  if (type.getRank() != 2 || type.getDimSize(0) != type.getDimSize(1) || type.getDimSize(0) < 2) return std::nullopt;
  auto table = tableOf(value);
  return table && table->kept != table->masked ? table : std::nullopt;
}

bool countsUp(Value value) {
  const SmallVector<int64_t> numbers = risingNumbers(value);
  return !numbers.empty() && numbers.front() == 0 && numbers.back() == int64_t(numbers.size()) - 1;
}

} // namespace cleave::attention
