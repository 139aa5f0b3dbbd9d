#include "compiler/attention/band_table.h"
#include "dialects/onnx/kinds.h"
#include "llvm/ADT/TypeSwitch.h"
#include <functional>

using namespace mlir;
using cleave::onnx::tensorType;

namespace cleave::attention {
namespace {

// The dimensions of a tensor that count queries and keys; -1: it has none.
struct Axes {
  int64_t row, column;
};

// The same dimensions of the operand of a movement; none where it moves its elements otherwise.
std::optional<Axes> axesBefore(Operation *movement, Axes axes) {
  auto mapped = [&](auto before) { return Axes{before(axes.row), before(axes.column)}; };
  if (auto broadcast = dyn_cast<onnx::BroadcastOp>(movement))
    return mapped([&](int64_t dim) -> int64_t {
      auto found = llvm::find(broadcast.getDims(), dim);
      return found == broadcast.getDims().end() ? -1 : found - broadcast.getDims().begin();
    });
  if (auto transpose = dyn_cast<onnx::TransposeOp>(movement))
    return mapped([&](int64_t dim) { return dim < 0 ? -1 : transpose.getPerm()[dim]; });
  auto reshape = dyn_cast<onnx::ReshapeOp>(movement);
  if (!reshape) return std::nullopt;
  // Dimensions of size 1 come and go.
  SmallVector<int64_t> before, after;
  auto wide = [](ArrayRef<int64_t> shape, SmallVector<int64_t> &dims) {
    SmallVector<int64_t> sizes;
    for (auto [dim, size] : llvm::enumerate(shape))
      if (size != 1) dims.push_back(static_cast<int64_t>(dim)), sizes.push_back(size);
    return sizes;
  };
  if (wide(tensorType(reshape.getX()).getShape(), before) != wide(reshape.getShape(), after)) return std::nullopt;
  return mapped([&](int64_t dim) -> int64_t {
    auto found = llvm::find(after, dim);
    return found == after.end() ? -1 : before[found - after.begin()];
  });
}

// The number at (row, column) of a tensor of integers: row * query + column * key + constant.
struct Position {
  int64_t row = 0, column = 0, constant = 0;
};

std::optional<Position> positionOf(Value value, Axes axes) {
  Operation *op = value.getDefiningOp();
  auto type = tensorType(value);
  if (!op || !type.getElementType().isInteger() || type.getElementType().isInteger(1)) return std::nullopt;
  auto along = [&](int64_t dim, int64_t first, int64_t step) -> std::optional<Position> {
    if (dim == axes.row) return Position{step, 0, first};
    if (dim == axes.column) return Position{0, step, first};
    return step == 0 ? std::optional(Position{0, 0, first}) : std::nullopt;
  };
  auto sum = [&](Value a, Value b, int64_t sign) -> std::optional<Position> {
    auto x = positionOf(a, axes), y = x ? positionOf(b, axes) : std::nullopt;
    if (!y) return std::nullopt;
    return Position{x->row + sign * y->row, x->column + sign * y->column, x->constant + sign * y->constant};
  };
  return llvm::TypeSwitch<Operation *, std::optional<Position>>(op)
      .Case([&](onnx::IotaOp iota) {
        const int64_t dim = iota.getDim();
        return along(dim, 0, type.getDimSize(dim) > 1);
      })
      .Case([&](onnx::ConstantOp constant) -> std::optional<Position> {
        auto numbers = constant.getValue().tryGetValues<APInt>();
        if (!numbers) return std::nullopt;
        if (constant.getValue().isSplat()) return Position{0, 0, (*numbers->begin()).getSExtValue()};
        SmallVector<int64_t> entries;
        for (const APInt &number : *numbers) entries.push_back(number.getSExtValue());
        const auto *longest = llvm::max_element(type.getShape());
        if (*longest != static_cast<int64_t>(entries.size())) return std::nullopt; // along several dimensions
        for (size_t i = 1; i < entries.size(); ++i)
          if (entries[i] - entries[i - 1] != entries[1] - entries[0]) return std::nullopt;
        return along(longest - type.getShape().begin(), entries[0], entries[1] - entries[0]);
      })
      .Case([&](onnx::AddOp op) { return sum(op.getA(), op.getB(), 1); })
      .Case([&](onnx::SubOp op) { return sum(op.getA(), op.getB(), -1); })
      .Case([&](onnx::CastOp op) { return positionOf(op.getX(), axes); })
      .Default([&](Operation *op) -> std::optional<Position> {
        auto before = op->getNumOperands() == 1 ? axesBefore(op, axes) : std::nullopt;
        return before ? positionOf(op->getOperand(0), *before) : std::nullopt;
      });
}

// The entries of a table by key - query, from 1 - queries on.
using Diagonals = SmallVector<double>;

class TableReader {
public:
  TableReader(int64_t rows, int64_t columns) : rows(rows), columns(columns) {}

  std::optional<Diagonals> read(Value value, Axes axes) const {
    Operation *op = value.getDefiningOp();
    if (!op) return std::nullopt;
    const bool isLogical = tensorType(value).getElementType().isInteger(1);
    auto both = [&](Value a, Value b, auto of) -> std::optional<Diagonals> {
      auto x = read(a, axes), y = x ? read(b, axes) : std::nullopt;
      if (y)
        for (auto [left, right] : llvm::zip_equal(*x, *y)) left = of(left, right);
      return y ? x : std::nullopt;
    };
    return llvm::TypeSwitch<Operation *, std::optional<Diagonals>>(op)
        .Case([&](onnx::ConstantOp constant) { return constantEntries(constant, axes); })
        .Case([&](onnx::LessOp op) { return compared(op, axes, std::less<>()); })
        .Case([&](onnx::LessOrEqualOp op) { return compared(op, axes, std::less_equal<>()); })
        .Case([&](onnx::GreaterOp op) { return compared(op, axes, std::greater<>()); })
        .Case([&](onnx::GreaterOrEqualOp op) { return compared(op, axes, std::greater_equal<>()); })
        .Case([&](onnx::MulOp op) { return both(op.getA(), op.getB(), std::multiplies<>()); })
        .Case([&](onnx::AddOp op) { return both(op.getA(), op.getB(), std::plus<>()); })
        .Case([&](onnx::SubOp op) { return both(op.getA(), op.getB(), std::minus<>()); })
        .Case(
            [&](onnx::AndOp op) { return isLogical ? both(op.getA(), op.getB(), std::multiplies<>()) : std::nullopt; })
        .Case([&](onnx::OrOp op) {
          return isLogical ? both(op.getA(), op.getB(), [](double a, double b) { return std::max(a, b); })
                           : std::nullopt;
        })
        .Case([&](onnx::NotOp op) -> std::optional<Diagonals> {
          auto entries = isLogical ? read(op.getX(), axes) : std::nullopt;
          if (entries)
            for (double &entry : *entries) entry = entry == 0;
          return entries;
        })
        .Case([&](onnx::WhereOp op) -> std::optional<Diagonals> {
          auto condition = read(op.getCondition(), axes);
          auto a = condition ? read(op.getA(), axes) : std::nullopt, b = a ? read(op.getB(), axes) : std::nullopt;
          if (!b) return std::nullopt;
          for (auto [seen, yes, no] : llvm::zip_equal(*condition, *a, *b)) seen = seen != 0 ? yes : no;
          return condition;
        })
        .Case([&](onnx::CastOp op) -> std::optional<Diagonals> {
          // A condition alone: other conversions may round.
          return tensorType(op.getX()).getElementType().isInteger(1) ? read(op.getX(), axes) : std::nullopt;
        })
        .Default([&](Operation *op) -> std::optional<Diagonals> {
          auto before = op->getNumOperands() == 1 ? axesBefore(op, axes) : std::nullopt;
          return before ? read(op->getOperand(0), *before) : std::nullopt;
        });
  }

private:
  template <typename Op, typename Holds> std::optional<Diagonals> compared(Op op, Axes axes, Holds holds) const {
    auto a = positionOf(op.getA(), axes), b = a ? positionOf(op.getB(), axes) : std::nullopt;
    if (!b || a->row - b->row != b->column - a->column) return std::nullopt;
    Diagonals entries;
    for (int64_t distance = 1 - rows; distance < columns; ++distance)
      entries.push_back(holds((a->column - b->column) * distance + a->constant - b->constant, int64_t(0)));
    return entries;
  }

  std::optional<Diagonals> constantEntries(onnx::ConstantOp constant, Axes axes) const {
    auto type = tensorType(constant.getY());
    ElementsAttr data = constant.getValue();
    auto filled = [&](auto read) -> std::optional<Diagonals> {
      if (data.isSplat()) return Diagonals(static_cast<size_t>(rows + columns - 1), read(0));
      if (axes.row < 0 || axes.column < 0 || type.getNumElements() != rows * columns) return std::nullopt;
      const int64_t step = axes.row < axes.column ? 1 : rows, rowStep = axes.row < axes.column ? columns : 1;
      Diagonals entries;
      for (int64_t distance = 1 - rows; distance < columns; ++distance)
        entries.push_back(read(std::max<int64_t>(0, -distance) * rowStep + std::max<int64_t>(0, distance) * step));
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < columns; ++column)
          if (read(row * rowStep + column * step) != entries[column - row + rows - 1]) return std::nullopt;
      return entries;
    };
    // Tables of any size are plain data or a resource; both can be iterated as their own type.
    auto readAs = [&]<typename Entry>(Entry) -> std::optional<Diagonals> {
      auto values = data.tryGetValues<Entry>();
      if (!values) return std::nullopt;
      return filled([&](int64_t index) { return static_cast<double>(*(values->begin() + index)); });
    };
    if (type.getElementType().isF32()) return readAs(float());
    return type.getElementType().isInteger(1) ? readAs(bool()) : std::nullopt;
  }

  int64_t rows, columns;
};

} // namespace

std::optional<BandTable> matchBandTable(Value value, int64_t row, int64_t column) {
  const int64_t rows = tensorType(value).getDimSize(row), columns = tensorType(value).getDimSize(column);
  auto read = TableReader(rows, columns).read(value, {row, column});
  if (!read) return std::nullopt;
  const Diagonals &entries = *read;
  const int64_t own = rows - 1, end = static_cast<int64_t>(entries.size()); // a query's own position
  int64_t first = own, last = own;
  while (first > 0 && entries[first - 1] == entries[own]) --first;
  while (last + 1 < end && entries[last + 1] == entries[own]) ++last;
  BandTable table{{}, entries[own], entries[first > 0 ? first - 1 : std::min(last + 1, end - 1)]};
  if (first > 0) table.band.left = own - first + 1;
  if (last + 1 < end) table.band.right = last - own;
  auto isOutside = [&](double entry) { return entry == table.outside; };
  const bool isBand = llvm::all_of(ArrayRef(entries).take_front(first), isOutside) &&
                      llvm::all_of(ArrayRef(entries).drop_front(last + 1), isOutside);
  return isBand && table.band.isBounded() ? std::optional(table) : std::nullopt;
}

Value hideOutside(onnx::Formula &f, const runtime::AttentionBand &band, Value query, Value key, Value x, Value hidden) {
  auto shape = tensorType(x).getShape();
  const int64_t rank = static_cast<int64_t>(shape.size());
  auto after = [&](Value position, int64_t distance) {
    return distance ? f.add(position, f.like(position, static_cast<double>(distance))) : position;
  };
  auto hide = [&](Value seen) {
    if (rank > 2) seen = f.make<onnx::BroadcastOp>(seen, shape, ArrayRef<int64_t>{rank - 2, rank - 1});
    x = f.where(seen, x, hidden);
  };
  if (band.right) hide(f.make<onnx::LessOrEqualOp>(key, after(query, *band.right)));
  if (band.left) hide(f.make<onnx::LessOp>(query, after(key, *band.left)));
  return x;
}

bool countsUp(Value value) {
  if (tensorType(value).getRank() != 1) return false;
  auto position = positionOf(value, {0, -1});
  return position && position->row == 1 && position->constant == 0;
}

} // namespace cleave::attention
