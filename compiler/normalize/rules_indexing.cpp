// Gathers and scatters. Several index dimensions become one over the flattened data, unless the indices are known and
// regular: what exporters write for masks is then movement only.
#include "compiler/normalize/along_axis.h"
#include "compiler/normalize/node.h"

using namespace mlir;
namespace cleave::normalize {
namespace {

bool isStep(ArrayRef<int64_t> values) { // 5 6 7 ...
  for (size_t i = 1; i < values.size(); ++i)
    if (values[i] != values[0] + int64_t(i)) return false;
  return true;
}

Values gather(Node &n) {
  Value table = n.in(0), indices = n.in(1);
  int64_t axis = n.axis(n.integer("axis", 0), rankOf(table)), size = shapeOf(table)[axis];
  Dims shape(shapeOf(table).take_front(axis));
  llvm::append_range(shape, shapeOf(indices));
  llvm::append_range(shape, shapeOf(table).drop_front(axis + 1));
  // One known row or neighbouring rows are a slice.
  if (auto known = alongAxis(indices)) {
    for (int64_t &value : known->values) {
      if (value < 0) value += size;
      if (value < 0 || value >= size) n.fail("index " + Twine(value) + " is outside of " + Twine(size) + " rows");
    }
    Dims index(shapeOf(indices));
    if (isStep(known->values)) {
      Value rows = n.b.slice(table, axis, known->values[0], int64_t(known->values.size()));
      // the rows stand along one dimension of the indices, the others repeat them
      Dims ones(shapeOf(table).take_front(axis));
      for (size_t d = 0; d < index.size(); ++d) ones.push_back(int64_t(d) == known->dim ? index[d] : 1);
      llvm::append_range(ones, shapeOf(table).drop_front(axis + 1));
      return {n.b.broadcastTo(n.b.reshape(rows, ones), shape)};
    }
  }
  return {n.b.gather(table, indices, axis)};
}

// Row-major index of the elements that `components` (each i64, same shape) name in dimensions of these sizes.
Value linearIndex(Node &n, ArrayRef<Value> components, ArrayRef<int64_t> sizes) {
  Value result;
  int64_t stride = 1;
  for (size_t i = components.size(); i-- > 0;) {
    Value index = n.b.cast(components[i], n.b.builder.getI64Type());
    DenseElementsAttr known = constantOf(index);
    bool mayBeNegative = !known || llvm::any_of(known.getValues<int64_t>(), [](int64_t v) { return v < 0; });
    if (mayBeNegative) {
      Value wrapped = n.b.add(index, double(sizes[i]));
      index = n.b.where(n.b.binary<onnx::LessOp>(index, n.b.scalar(index, 0)), wrapped, index);
    }
    Value scaled = n.b.mul(index, double(stride));
    result = result ? n.b.add(scaled, result) : scaled;
    stride *= sizes[i];
  }
  return result;
}

int64_t product(ArrayRef<int64_t> sizes) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return count;
}

// Index components that count along different dimensions of the index grid: the result is a slice of the data, its
// dimensions moved to where the grid has them. Null if the indices are not of that kind.
Value gatherGrid(Node &n, Value data, ArrayRef<Value> components, ArrayRef<int64_t> grid) {
  int64_t depth = int64_t(components.size());
  Dims order, at(grid.size(), -1); // data dimension that stands along each grid dimension
  Dims starts(rankOf(data), 0), sizes(shapeOf(data));
  for (int64_t i = 0; i < depth; ++i) {
    auto known = alongAxis(components[i]);
    if (!known || !isStep(known->values)) return {};
    int64_t first = known->values[0] < 0 ? known->values[0] + shapeOf(data)[i] : known->values[0];
    if (first < 0 || first + int64_t(known->values.size()) > shapeOf(data)[i]) return {};
    starts[i] = first;
    sizes[i] = int64_t(known->values.size());
    if (known->dim < 0) continue;
    if (at[known->dim] >= 0) return {};
    at[known->dim] = i;
  }
  Value part = n.b.sliceAll(data, starts, sizes);
  // dimensions along the grid in the grid's order, then those of size 1 (known indices), then the rest of the data
  Dims perm, shape, result(grid);
  for (auto [g, d] : llvm::enumerate(at)) {
    if (d >= 0) perm.push_back(d);
    shape.push_back(d >= 0 ? grid[g] : 1);
  }
  for (int64_t i = 0; i < depth; ++i)
    if (!llvm::is_contained(at, i)) perm.push_back(i);
  for (int64_t d = depth; d < rankOf(data); ++d) {
    perm.push_back(d);
    shape.push_back(shapeOf(data)[d]);
    result.push_back(shapeOf(data)[d]);
  }
  return n.b.broadcastTo(n.b.reshape(n.b.transpose(part, perm), shape), result);
}

Values gatherND(Node &n) {
  Value data = n.in(0), indices = n.in(1);
  int64_t batch = n.integer("batch_dims", 0), depth = shapeOf(indices).back();
  if (batch < 0 || batch >= rankOf(indices) || batch + depth > rankOf(data)) n.fail("its indices do not fit its data");
  ArrayRef<int64_t> grid = shapeOf(indices).drop_back();
  Values components; // batch dimensions index themselves
  for (int64_t d = 0; d < batch; ++d) components.push_back(n.b.indexAlong(grid, d));
  for (int64_t i = 0; i < depth; ++i) components.push_back(component(n.b, indices, i));
  if (Value moved = gatherGrid(n, data, components, grid)) return {moved};
  ArrayRef<int64_t> indexed = shapeOf(data).take_front(batch + depth), rest = shapeOf(data).drop_front(batch + depth);
  Dims flat{product(indexed)};
  llvm::append_range(flat, rest);
  return {n.b.gather(n.b.reshape(data, flat), linearIndex(n, components, indexed), 0)};
}

// Positions of an index tensor along `axis` of data: every other dimension counts itself.
Value elementIndex(Node &n, Value data, Value indices, int64_t axis) {
  Values components;
  for (int64_t d = 0; d < rankOf(data); ++d)
    components.push_back(d == axis ? indices : n.b.indexAlong(shapeOf(indices), d));
  return linearIndex(n, components, shapeOf(data));
}

Values gatherElements(Node &n) {
  Value data = n.in(0), indices = n.in(1);
  if (rankOf(data) != rankOf(indices)) n.fail("needs indices of the data's rank");
  int64_t axis = n.axis(n.integer("axis", 0), rankOf(data));
  Value flat = n.b.reshape(data, {typeOf(data).getNumElements()});
  return {n.b.gather(flat, elementIndex(n, data, indices, axis), 0)};
}

// data (flattened to rows) with updates at `index` (any shape; updates: that shape, then the row).
Value scatter(Node &n, Value data, Value index, Value updates, const std::string &reduction) {
  auto rows = n.b.builder.getI64IntegerAttr(shapeOf(data)[0]), axis = n.b.builder.getI64IntegerAttr(0);
  auto sum = [&](Value values) {
    return n.b.create<onnx::ScatterAddOp>(index, values, axis, rows, ArrayAttr(), IntegerAttr());
  };
  if (reduction == "add") return n.b.add(data, sum(updates));
  if (reduction != "none") n.fail("reduction '" + reduction + "' is not supported");
  // Which rows are overwritten: the indices of one update must differ, as ONNX demands.
  Type f32 = n.b.builder.getF32Type();
  Value hits = sum(n.b.splat(RankedTensorType::get(shapeOf(updates), f32), 1));
  Value written = n.b.binary<onnx::GreaterOp>(hits, n.b.scalar(hits, 0));
  bool small = !isFloatTensor(updates) && elementOf(updates).getIntOrFloatBitWidth() < 8; // i1 adds as i32
  Value values = small ? n.b.cast(sum(n.b.cast(updates, n.b.builder.getI32Type())), elementOf(updates)) : sum(updates);
  return n.b.where(written, values, data);
}

Values scatterND(Node &n) {
  Value data = n.in(0), indices = n.in(1), updates = n.in(2);
  int64_t depth = shapeOf(indices).back();
  if (depth > rankOf(data)) n.fail("its indices do not fit its data");
  Values components;
  for (int64_t i = 0; i < depth; ++i) components.push_back(component(n.b, indices, i));
  ArrayRef<int64_t> indexed = shapeOf(data).take_front(depth);
  Dims flat{product(indexed)};
  llvm::append_range(flat, shapeOf(data).drop_front(depth));
  Value index = linearIndex(n, components, indexed);
  Value result = scatter(n, n.b.reshape(data, flat), index, updates, n.text("reduction", "none"));
  return {n.b.reshape(result, shapeOf(data))};
}

Values scatterElements(Node &n) {
  Value data = n.in(0), indices = n.in(1), updates = n.in(2);
  if (rankOf(data) != rankOf(indices)) n.fail("needs indices of the data's rank");
  int64_t axis = n.axis(n.integer("axis", 0), rankOf(data));
  Value flat = n.b.reshape(data, {typeOf(data).getNumElements()});
  Value result = scatter(n, flat, elementIndex(n, data, indices, axis), updates, n.text("reduction", "none"));
  return {n.b.reshape(result, shapeOf(data))};
}

} // namespace

void addIndexing(Rules &rules) {
  rules.add("Gather", gather);
  rules.add("GatherND", gatherND);
  rules.add("GatherElements", gatherElements);
  rules.add("ScatterND", scatterND);
  rules.add("ScatterElements", scatterElements);
  rules.add("Scatter", scatterElements);
}

} // namespace cleave::normalize
