#include "compiler/normalize/selection.h"
#include "compiler/normalize/along_axis.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include <functional>
#include <numeric>

using namespace mlir;
namespace cleave::normalize {
namespace {

int64_t product(ArrayRef<int64_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), int64_t(1), std::multiplies<>());
}
int64_t positionsOf(const Selection &s) { return typeOf(s.mask).getNumElements(); }

// The value as one that the rules of its users must not look through.
Value mark(Node &n, Value value) {
  return UnrealizedConversionCastOp::create(n.b.builder, n.b.loc, value.getType(), value).getResult(0);
}

// Computed alike from the same values, a few operations back.
bool isSame(Value a, Value b, int depth = 8) {
  if (a == b) return true;
  Operation *x = a.getDefiningOp(), *y = b.getDefiningOp();
  auto areSame = [&](Value left, Value right) { return success(isSame(left, right, depth - 1)); };
  return depth > 0 && x && y &&
         OperationEquivalence::isEquivalentTo(x, y, areSame, nullptr, OperationEquivalence::IgnoreLocations);
}

// The value without views of all its elements.
Value withoutReshapes(Value value) {
  while (auto reshape = value.getDefiningOp<onnx::ReshapeOp>()) value = reshape.getX();
  return value;
}

// Whether an integer is how many positions of the mask there are: ReduceSum(Cast(mask)).
bool isCountOf(Value value, Value mask) {
  auto sum = withoutReshapes(value).getDefiningOp<onnx::ReduceSumOp>();
  if (!sum || typeOf(value).getNumElements() != 1) return false;
  Value x = withoutReshapes(sum.getX());
  if (auto cast = x.getDefiningOp<onnx::CastOp>()) x = withoutReshapes(cast.getX());
  return isSame(x, withoutReshapes(mask));
}

// The selection with one position for each element, where a position of another mask has `each` elements: a mask that
// repeats it along dimensions behind its own.
bool isSameSelection(const Selection &a, const Selection &b) {
  if (positionsOf(a) * a.each != positionsOf(b) * b.each) return false;
  const Selection &coarse = a.each > b.each ? a : b, &fine = a.each > b.each ? b : a;
  if (coarse.each == fine.each) return isSame(withoutReshapes(a.mask), withoutReshapes(b.mask));
  auto repeated = withoutReshapes(fine.mask).getDefiningOp<onnx::BroadcastOp>();
  if (!repeated || fine.each != 1) return false;
  for (auto [at, dim] : llvm::enumerate(repeated.getDims()))
    if (dim != static_cast<int64_t>(at)) return false;
  return isSame(withoutReshapes(repeated.getX()), withoutReshapes(coarse.mask));
}

// The mask in a shape that broadcasts to that of a value it selects.
Value maskFor(Node &n, const Selection &s, Value value) {
  const int64_t positions = positionsOf(s);
  Dims shape(rankOf(value), 1);
  shape[s.dim] = positions * s.each;
  Value mask = n.b.reshape(s.mask, {positions, 1});
  return n.b.reshape(n.b.broadcastTo(mask, {positions, s.each}), shape);
}

// The dimension of the selected tensor that an index counts along; none: it is something else.
std::optional<int64_t> countedDim(Value index, ArrayRef<int64_t> grid) {
  Value view = withoutReshapes(index);
  if (shapeOf(view) == grid)
    if (auto along = alongAxis(view); along && along->dim >= 0 && grid[along->dim] == int64_t(along->values.size()))
      if (along->values == countUp(int64_t(along->values.size()))) return along->dim;
  std::optional<runtime::HostTensor> known = evaluateOnDemand(index);
  if (!known || known->elements() != product(grid)) return std::nullopt;
  const std::vector<int64_t> values = known->integers();
  for (int64_t dim = 0, stride = product(grid); dim < int64_t(grid.size()); ++dim) {
    stride /= grid[dim];
    bool fits = true;
    for (size_t i = 0; fits && i < values.size(); ++i) fits = values[i] == int64_t(i) / stride % grid[dim];
    if (fits) return dim;
  }
  return std::nullopt;
}

// The dimensions of the grid that these indices count along, if they are the sizes and each is another one.
std::optional<Dims> countedDims(ArrayRef<Value> indices, ArrayRef<int64_t> grid, ArrayRef<int64_t> sizes) {
  Dims dims;
  for (auto [index, size] : llvm::zip(indices, sizes)) {
    std::optional<int64_t> dim = countedDim(index, grid);
    if (!dim || grid[*dim] != size || llvm::is_contained(dims, *dim)) return std::nullopt;
    dims.push_back(*dim);
  }
  return dims;
}

// The rows of a table for each position: its dimensions from `axis` on are those of the grid that are listed.
Value rowsAt(Node &n, Value table, int64_t axis, ArrayRef<int64_t> dims, ArrayRef<int64_t> grid) {
  const int64_t depth = int64_t(dims.size()), rank = rankOf(table);
  Dims perm = countUp(rank), sorted(dims), shape(shapeOf(table).take_front(axis)), at, result(shape);
  llvm::sort(sorted);
  for (auto [i, dim] : llvm::enumerate(sorted)) perm[axis + int64_t(i)] = axis + (llvm::find(dims, dim) - dims.begin());
  for (int64_t d = 0; d < rank; ++d)
    at.push_back(d < axis ? d : d < axis + depth ? axis + sorted[d - axis] : d - depth + int64_t(grid.size()));
  llvm::append_range(shape, grid);
  llvm::append_range(shape, shapeOf(table).drop_front(axis + depth));
  result.push_back(product(grid));
  llvm::append_range(result, shapeOf(table).drop_front(axis + depth));
  Value rows = n.b.create<onnx::BroadcastOp>(n.b.transpose(table, perm), n.b.builder.getDenseI64ArrayAttr(shape),
                                             n.b.builder.getDenseI64ArrayAttr(at));
  return n.b.reshape(rows, result);
}

// Where the positions are in a view of another shape.
std::optional<Selection> inView(Selection s, ArrayRef<int64_t> from, ArrayRef<int64_t> to) {
  const int64_t size = from[s.dim], before = product(from.take_front(s.dim));
  int64_t seen = 1;
  for (auto [d, wide] : llvm::enumerate(to)) {
    if (seen == before && wide >= size && wide % size == 0) {
      s.dim = int64_t(d), s.each *= wide / size;
      return s;
    }
    seen *= wide;
  }
  return std::nullopt;
}

bool isAmong(StringRef op, StringRef words) { return llvm::is_contained(llvm::split(words, ' '), op); }

// The operand whose derivative is infinite at some numbers, or overflows.
std::optional<size_t> singularOperand(StringRef op) {
  if (op == "Div") return 1;
  return isAmong(op, "Log Sqrt Reciprocal Pow Exp Sinh Cosh ReduceL2") ? std::optional<size_t>(0) : std::nullopt;
}

class SelectedNode {
public:
  explicit SelectedNode(Node &n, Rule rule) : n(n), rule(rule) {}

  Values rewrite() {
    const std::string op = n.type();
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (!of(i)) continue;
      if (!entries) entries = *of(i);
      if (!isSameSelection(*of(i), *entries)) n.fail("its operands are what different data select (NonZero)");
    }
    if (op == "Shape") return shape();
    if (op == "ScatterND" || op == "ScatterElements") return scatter(op == "ScatterElements");
    if (std::optional<size_t> at = singularOperand(op); at && of(*at)) {
      Value &x = n.inputs[*at];
      x = n.b.where(maskFor(n, *of(*at), x), x, n.b.scalar(x, 1));
    }
    if (Rules::all().isPerElement(n.op.getDomain(), op)) return alignedAtEnd();
    if (op == "Gather" && of(1) && !of(0)) return gather();
    if (op == "GatherND" && of(1) && !of(0)) return gatherND();
    if (op == "Expand" && isCountFirst()) return marked({n.in(0)}, *of(0));
    if (of(0)) {
      const int64_t dim = of(0)->dim, rank = rankOf(n.in(0));
      if (op == "MatMul") return matMul();
      if (op == "Gemm" && dim == 0 && !n.integer("transA", 0) && !of(1) && !(n.has(2) && (of(2) || spans(2, 1))))
        return moved(0);
      if (op == "Transpose") return transpose();
      if (!of(0)->indices.empty() && (op == "Split" || op == "Slice" || op == "Gather")) return pickIndices();
      if (op == "Reshape" || op == "Flatten" || op == "Squeeze" || op == "Unsqueeze") return view();
      if (op == "Expand" || op == "Slice") return alignedAtEnd();
      if (op == "Split" || op == "Concat" || op == "Softmax" || op == "LogSoftmax" || op == "TopK") {
        const bool isLast = op == "TopK" || (n.version() >= 13 && op != "Split" && op != "Concat");
        if (op == "Concat" && !llvm::all_of(n.selections, [](const auto &one) { return one.has_value(); })) refuse();
        const int64_t axis = n.axis(n.integer("axis", isLast ? -1 : op == "Split" ? 0 : 1), rank);
        const bool isOfAllBehind = StringRef(op).ends_with("Softmax") && n.version() < 13;
        if (isOfAllBehind ? axis > dim : axis != dim) return moved(dim);
      }
      if (op == "SplitToSequence" && n.axis(n.integer("axis", 0), rank) != dim) return toSequence();
      if (StringRef(op).ends_with("LayerNormalization") || op == "RMSNormalization")
        if (dim < n.axis(n.integer("axis", -1), rank)) return moved(dim);
      if (op == "ReduceSum" || op == "ReduceMean" || op == "ReduceMax" || op == "ReduceMin" || op == "ReduceL2")
        return reduce();
      if (op == "Gather" && !of(1)) {
        const int64_t axis = n.axis(n.integer("axis", 0), rank);
        if (axis != dim) return moved(dim < axis ? dim : dim + rankOf(n.in(1)) - 1);
      }
    }
    refuse();
  }

private:
  Node &n;
  Rule rule;
  std::optional<Selection> entries, none; // of the operands

  const std::optional<Selection> &of(size_t i) const { return i < n.selections.size() ? n.selections[i] : none; }
  [[noreturn]] void refuse() {
    n.fail(
        "its operand has as many entries as data select (NonZero); operators that compute each of them by itself, and "
        "scatters that put them back, are supported there");
  }
  // Does input `i` differ along its dimension that is `fromEnd` from the last?
  bool spans(size_t i, int64_t fromEnd) {
    ArrayRef<int64_t> shape = shapeOf(n.in(i));
    return int64_t(shape.size()) > fromEnd && shape[shape.size() - 1 - size_t(fromEnd)] != 1;
  }
  Values marked(Values results, Selection s) {
    for (Value &result : results)
      if (result) n.state.selected[result = mark(n, result)] = s;
    return results;
  }
  // The rule's results, of which each has the positions along `dim`.
  Values moved(int64_t dim) {
    Selection s = *entries;
    s.dim = dim;
    if (n.type() != "Transpose") s.indices.clear();
    Values results = rule(n);
    for (Value result : results)
      if (result && (dim >= rankOf(result) || shapeOf(result)[dim] != positionsOf(s) * s.each)) refuse();
    return marked(results, s);
  }

  // Dimensions that lie on each other, counted from the last one, as operands broadcast.
  Values alignedAtEnd() {
    int64_t fromEnd = -1, rank = 0;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      if (!n.inputs[i]) continue;
      if (n.type() == "Slice" && i > 0) break;
      rank = std::max(rank, n.type() == "Expand" && i == 1 ? shapeOf(n.in(1))[0] : rankOf(n.in(i)));
      if (!of(i)) continue;
      const int64_t here = rankOf(n.in(i)) - 1 - of(i)->dim;
      if (fromEnd >= 0 && here != fromEnd) refuse();
      fromEnd = here;
    }
    const bool isMovement = n.type() == "Slice" || n.type() == "Expand";
    for (size_t i = 0; i < n.inputs.size() && !isMovement; ++i)
      if (n.inputs[i] && !of(i) && spans(i, fromEnd)) refuse();
    if (n.type() == "Slice" && n.has(4)) // a whole dimension, not backwards
      for (int64_t step : n.constantInts(4))
        if (step < 0) refuse();
    return moved(rank - 1 - fromEnd);
  }

  // [.., positions, k] times [k, n], or with more dimensions in front that broadcast.
  Values matMul() {
    const int64_t rank = rankOf(n.in(0)), other = rankOf(n.in(1)), dim = of(0)->dim;
    if (of(1) || dim == rank - 1 || other < 1) refuse();
    if (dim < rank - 2 && spans(1, rank - 1 - dim)) refuse();
    return moved(other == 1 ? dim : dim + std::max(rank, other) - rank);
  }
  Values transpose() {
    const int64_t rank = rankOf(n.in(0));
    Dims reversed = countUp(rank);
    std::reverse(reversed.begin(), reversed.end());
    const Dims perm = n.ints("perm", reversed);
    return moved(llvm::find(perm, of(0)->dim) - perm.begin());
  }
  // Rows, or columns, of the matrix of indices.
  Values pickIndices() {
    const int64_t dim = of(0)->dim;
    Values results = rule(n);
    int64_t first = 0;
    if (n.type() == "Gather") {
      if (of(1) || n.axis(n.integer("axis", 0), 2) == dim) refuse();
      first = n.constantInt(1);
    } else if (n.type() == "Slice") {
      auto starts = n.intsOrInput("starts", 1), axes = n.intsOrInput("axes", 3);
      for (auto [i, start] : llvm::enumerate(*starts))
        if (n.axis(axes ? (*axes)[i] : int64_t(i), 2) != dim) first = start;
    } else if (n.axis(n.integer("axis", 0), 2) == dim) {
      refuse();
    }
    const int64_t count = int64_t(of(0)->indices.size());
    Selection s = *of(0);
    for (Value &result : results) {
      const int64_t positions = positionsOf(s), at = first < 0 ? first + count : first;
      if (typeOf(result).getNumElements() != positions || at < 0 || at >= count) refuse();
      result = n.b.reshape(of(0)->indices[size_t(at)], shapeOf(result));
      ++first;
    }
    s.indices.clear();
    if (n.type() == "Gather") s.dim = dim && rankOf(results[0]) == 1 ? 0 : dim;
    return marked(results, s);
  }
  Values view() {
    Values results = rule(n);
    auto s = inView(*of(0), shapeOf(n.in(0)), shapeOf(results[0]));
    if (!s) refuse();
    s->indices.clear();
    return marked(results, *s);
  }
  Values reduce() {
    const int64_t rank = rankOf(n.in(0)), dim = of(0)->dim;
    auto given = n.intsOrInput("axes", 1);
    if (!given || given->empty()) refuse();
    const Dims axes = n.axes(*given, rank);
    if (llvm::is_contained(axes, dim)) refuse();
    return moved(n.integer("keepdims", 1) ? dim : dim - llvm::count_if(axes, [&](int64_t axis) { return axis < dim; }));
  }
  // A shape whose first size is how many positions of the mask there are: numbers that PyTorch's exporter computes.
  bool isCountFirst() {
    if (!of(0) || of(0)->dim != 0 || !n.has(1) || evaluateOnDemand(n.in(1))) return false;
    auto sizes = n.in(1).getDefiningOp<onnx::ConcatOp>();
    if (!sizes || int64_t(sizes.getXs().size()) < 1 || !isCountOf(sizes.getXs()[0], of(0)->mask)) return false;
    int64_t at = 1;
    for (Value part : sizes.getXs().drop_front()) {
      auto known = evaluateOnDemand(part);
      if (!known) return false;
      for (int64_t size : known->integers())
        if (at >= rankOf(n.in(0)) || shapeOf(n.in(0))[at++] != size) return false;
    }
    return at == rankOf(n.in(0));
  }

  // Sizes, of which one is how many positions are selected.
  Values shape() {
    const Selection &s = *of(0);
    const int64_t rank = rankOf(n.in(0));
    auto clamp = [&](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank); };
    Values sizes;
    for (int64_t d = clamp(n.integer("start", 0)), end = clamp(n.integer("end", rank)); d < end; ++d) {
      Value size = n.b.integers({d == s.dim ? positionsOf(s) : shapeOf(n.in(0))[d]});
      if (d == s.dim) {
        size = mark(n, size);
        n.state.counts[size] = s;
        size = n.b.mul(size, double(s.each));
      }
      sizes.push_back(size);
    }
    if (sizes.empty()) return rule(n);
    return {sizes.size() == 1 ? sizes[0] : n.b.concat(sizes, 0)};
  }

  Values toSequence() {
    if (!n.has(1) && !n.integer("keepdims", 1)) refuse();
    Values results = rule(n);
    Selection s = *of(0);
    s.indices.clear();
    Values elements = marked(n.state.sequences[results[0]], s);
    n.state.sequences[results[0]] = elements;
    return results;
  }

  // The rows of the table that the positions name.
  Values gather() {
    Value table = n.in(0), indices = n.in(1);
    const int64_t axis = n.axis(n.integer("axis", 0), rankOf(table));
    Selection s = *of(1);
    const int64_t dim = axis + s.dim;
    std::optional<Dims> dims;
    if (typeOf(indices).getNumElements() == positionsOf(s) && s.each == 1)
      dims = countedDims({indices}, shapeOf(s.mask), {shapeOf(table)[axis]});
    if (!dims) return moved(dim);
    s.dim = dim;
    Dims shape(shapeOf(table).take_front(axis));
    llvm::append_range(shape, shapeOf(indices));
    llvm::append_range(shape, shapeOf(table).drop_front(axis + 1));
    return marked({n.b.reshape(rowsAt(n, table, axis, *dims, shapeOf(s.mask)), shape)}, s);
  }
  Values gatherND() {
    Value data = n.in(0);
    if (n.integer("batch_dims", 0) || rankOf(n.in(1)) != 2 || of(1)->dim != 0) refuse();
    Selection s = *of(1);
    std::optional<Dims> dims;
    if (s.each == 1 && shapeOf(n.in(1))[1] <= rankOf(data))
      dims = countedDims(columns(n.in(1)), shapeOf(s.mask), shapeOf(data).take_front(shapeOf(n.in(1))[1]));
    if (!dims) return moved(0);
    return marked({rowsAt(n, data, 0, *dims, shapeOf(s.mask))}, s);
  }
  Values columns(Value indices) {
    Values all(of(1)->indices);
    for (int64_t i = 0; i < shapeOf(indices).back() && of(1)->indices.empty(); ++i)
      all.push_back(component(n.b, indices, i));
    return all;
  }

  // data + the updates of the selected positions, or data with them.
  Values scatter(bool isOfElements) {
    Value data = n.in(0), updates = n.in(2);
    const std::string reduction = n.text("reduction", "none");
    if (of(0) || !of(1) || !of(2) || of(1)->dim != 0 || of(2)->dim != 0 || of(1)->each != 1) refuse();
    if (reduction != "none" && reduction != "add") refuse();
    ArrayRef<int64_t> grid = shapeOf(of(1)->mask), index = shapeOf(n.in(1));
    Values indices;
    if (isOfElements) { // an index for each element of a row, which are all the same
      Dims row(index);
      row[0] = shapeOf(data)[0];
      auto repeated = n.in(1).getDefiningOp<onnx::BroadcastOp>();
      const bool isRepeated = repeated && repeated.getDims() == ArrayRef<int64_t>{0};
      if (n.axis(n.integer("axis", 0), rankOf(data)) != 0 || ArrayRef<int64_t>(row) != shapeOf(data) ||
          (!isRepeated && product(row) != row[0]))
        refuse();
      indices.push_back(isRepeated ? repeated.getX() : n.b.reshape(n.in(1), {index[0]}));
    } else {
      if (index.size() != 2 || index[1] > rankOf(data)) refuse();
      indices = columns(n.in(1));
    }
    const int64_t depth = int64_t(indices.size());
    auto dims = countedDims(indices, grid, shapeOf(data).take_front(depth));
    if (!dims) refuse();
    ArrayRef<int64_t> rest = shapeOf(data).drop_front(depth);
    if (typeOf(updates).getNumElements() != product(grid) * product(rest)) refuse();

    // [.., those of the data in their order, .., the others]
    Dims perm(*dims), others;
    for (int64_t d = 0; d < int64_t(grid.size()); ++d)
      if (!llvm::is_contained(*dims, d)) perm.push_back(d), others.push_back(int64_t(perm.size()) - 1);
    auto onGrid = [&](Value x, ArrayRef<int64_t> row) {
      Dims shape(grid), order(perm);
      llvm::append_range(shape, row);
      for (int64_t d = int64_t(grid.size()); d < int64_t(shape.size()); ++d) order.push_back(d);
      return n.b.transpose(n.b.reshape(x, shape), order);
    };
    Value mask = onGrid(of(1)->mask, Dims(rest.size(), 1));
    auto sum = [&](Value x) {
      x = onGrid(x, rest);
      return n.b.reduceSum(n.b.where(mask, x, n.b.scalar(x, 0)), others, false);
    };
    if (reduction == "add") return {n.b.add(data, sum(updates))};
    if (!others.empty() && product(grid) != product(shapeOf(data).take_front(depth)) && !isOneOf(of(1)->mask, *dims))
      n.fail("it may put several entries that data select (NonZero) at one place; only an index_add_ of them, and one "
             "entry a place, are supported");
    // data[i] += x
    if (auto add = withoutReshapes(updates).getDefiningOp<onnx::AddOp>()) {
      Value rows = rowsAt(n, data, 0, *dims, grid);
      for (auto [old, x] : {std::pair(add.getA(), add.getB()), std::pair(add.getB(), add.getA())})
        if (isSame(withoutReshapes(old), withoutReshapes(rows))) return {n.b.add(data, sum(x))};
    }
    if (onnx::repeatedNumber(data) == 0.0) return {sum(updates)};
    if (others.empty()) return {n.b.where(mask, onGrid(updates, rest), data)};
    Value counts = n.b.reduceSum(n.b.cast(mask, n.b.builder.getI32Type()), others, false);
    return {n.b.where(n.b.binary<onnx::GreaterOp>(counts, n.b.scalar(counts, 0)), sum(updates), data)};
  }
  // Does the mask hold at most once along the dimensions that are not listed? It does where different integers are
  // compared with one number.
  bool isOneOf(Value mask, ArrayRef<int64_t> dims) {
    auto equal = mask.getDefiningOp<onnx::EqualOp>();
    if (!equal) return false;
    for (auto [x, y] : {std::pair(equal.getA(), equal.getB()), std::pair(equal.getB(), equal.getA())}) {
      auto distinct = n.state.distinct.find(x);
      if (distinct == n.state.distinct.end() || !splatOf(y)) continue;
      if (llvm::all_of(llvm::seq<int64_t>(0, rankOf(mask)), [&](int64_t d) {
            return llvm::is_contained(dims, d) || d == distinct->second || shapeOf(mask)[d] == 1;
          }))
        return true;
    }
    return false;
  }
};

} // namespace

Value selectPositions(Node &n, Value x) {
  ArrayRef<int64_t> grid = shapeOf(x);
  const int64_t positions = product(grid);
  if (grid.empty() || positions == 0) n.fail("its operand has no dimensions or no elements");
  Selection s{x, 1};
  if (!elementOf(x).isInteger(1)) s.mask = n.b.unary<onnx::NotOp>(n.b.binary<onnx::EqualOp>(x, n.b.scalar(x, 0)));
  Values rows;
  for (int64_t dim = 0; dim < int64_t(grid.size()); ++dim) {
    auto type = RankedTensorType::get(grid, n.b.builder.getI64Type());
    s.indices.push_back(n.b.create<onnx::IotaOp>(TypeAttr::get(type), n.b.builder.getI64IntegerAttr(dim), ArrayAttr()));
    rows.push_back(n.b.reshape(s.indices.back(), {1, positions}));
  }
  Value selected = mark(n, rows.size() == 1 ? rows[0] : n.b.concat(rows, 0));
  n.state.selected[selected] = s;
  return selected;
}

Values rewriteSelected(Node &n, Rule rule) { return SelectedNode(n, rule).rewrite(); }

void checkCounts(Node &n, size_t i) {
  auto isShape = [&](const Selection &count) {
    if (!n.selections[0] || (n.type() != "Reshape" && n.type() != "Expand" && n.type() != "Slice")) return false;
    const int64_t all = positionsOf(count), own = positionsOf(*n.selections[0]);
    return isSameSelection({count.mask, 0, std::max<int64_t>(own / all, 1)},
                           {n.selections[0]->mask, 0, std::max<int64_t>(all / own, 1)});
  };
  SmallVector<Value> work{n.in(i)};
  llvm::SmallDenseSet<Value> seen;
  while (!work.empty()) {
    Value value = work.pop_back_val();
    if (!seen.insert(value).second) continue;
    if (auto count = n.state.counts.find(value); count == n.state.counts.end()) {
      if (Operation *op = value.getDefiningOp()) llvm::append_range(work, op->getOperands());
    } else if (!isShape(count->second)) {
      n.fail("it needs to know how many entries data select (NonZero), which only a running step knows");
    }
  }
}

LogicalResult eraseMarks(FunctionState &state) {
  for (auto &[mark, selection] : state.selected) { // nodes have read through them
    if (!mark.use_empty())
      return emitError(mark.getLoc(),
                       "what data select (NonZero) becomes a part of a sequence or of a graph, where it is "
                       "not supported");
    mark.getDefiningOp()->erase();
  }
  for (auto &[mark, selection] : state.counts) {
    llvm::SetVector<Operation *> readers; // shapes that have become constants
    readers.insert(mark.getDefiningOp());
    for (size_t i = 0; i < readers.size(); ++i) readers.insert(readers[i]->user_begin(), readers[i]->user_end());
    for (Operation *reader : llvm::reverse(readers.getArrayRef())) {
      if (!reader->use_empty() || reader->hasTrait<OpTrait::IsTerminator>())
        return emitError(reader->getLoc(), "needs to know how many entries data select (NonZero), which only a running "
                                           "step knows");
      reader->erase();
    }
  }
  return success();
}

} // namespace cleave::normalize
