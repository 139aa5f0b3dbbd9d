// Gathers and scatters. Several index dimensions become one over the flattened data, unless the indices are known and
// regular: what exporters write for masks is then movement only.
#include "compiler/normalize/along_axis.h"
#include "compiler/normalize/node.h"
#include <cmath>
#include <map>

using namespace mlir;
namespace cleave::normalize {
namespace {

bool isStep(ArrayRef<int64_t> values) { // 5 6 7 ...
  for (size_t i = 1; i < values.size(); ++i)
    if (values[i] != values[0] + int64_t(i)) return false;
  return true;
}

// The first of known indices that count on one by one in row-major order.
std::optional<int64_t> firstOfConsecutive(Value indices) {
  DenseElementsAttr known = constantOf(indices);
  if (!known || known.getNumElements() == 0 || (known.isSplat() && known.getNumElements() > 1)) return std::nullopt;
  std::optional<int64_t> first;
  int64_t at = 0;
  for (const llvm::APInt &value : known.getValues<llvm::APInt>()) {
    if (!first) first = value.getSExtValue();
    if (value.getSExtValue() != *first + at++) return std::nullopt;
  }
  return first;
}

Values gather(Node &n) {
  Value table = n.in(0), indices = n.in(1);
  int64_t axis = n.axis(n.integer("axis", 0), rankOf(table)), size = shapeOf(table)[axis];
  Dims shape(shapeOf(table).take_front(axis));
  llvm::append_range(shape, shapeOf(indices));
  llvm::append_range(shape, shapeOf(table).drop_front(axis + 1));
  if (const int64_t padding = n.integer(onnx::paddingRowName, -1); padding >= 0)
    return {n.b.gather(table, indices, axis, 0, padding)};
  // One known row or consecutive rows are a slice.
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
  // Rows that are known and follow each other, in whatever shape: what exporters make of a mask is one of them.
  if (std::optional<int64_t> first = firstOfConsecutive(indices); first && *first >= 0) {
    const int64_t count = typeOf(indices).getNumElements();
    if (*first + count > size) n.fail("index " + Twine(*first + count - 1) + " is outside of " + Twine(size) + " rows");
    return {n.b.reshape(n.b.slice(table, axis, *first, count), shape)};
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
    auto isNegative = [](int64_t v) { return v < 0; };
    bool mayBeNegative = !known || (known.isSplat() ? isNegative(known.getSplatValue<int64_t>())
                                                    : llvm::any_of(known.getValues<int64_t>(), isNegative));
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

// The leading components that only say that each entry of the data looks up its own: component d counts the whole
// dimension d, which the data has, too.
int64_t ownDims(ArrayRef<Value> components, ArrayRef<int64_t> grid, ArrayRef<int64_t> data) {
  int64_t own = 0;
  for (; own < int64_t(std::min(components.size(), grid.size())); ++own) {
    auto known = alongAxis(components[own]);
    if (grid[own] != data[own] || !known || !isStep(known->values) || known->values[0] != 0) break;
    if (known->dim != own && grid[own] != 1) break;
  }
  return own;
}

// `data` with the dimensions that are indexed (the first `indexed`, but for the first `own`) as one.
Value asRows(Node &n, Value data, int64_t own, int64_t indexed) {
  Dims shape(shapeOf(data).take_front(own));
  shape.push_back(product(shapeOf(data).slice(own, indexed - own)));
  llvm::append_range(shape, shapeOf(data).drop_front(indexed));
  return n.b.reshape(data, shape);
}

Values gatherND(Node &n) {
  Value data = n.in(0), indices = n.in(1);
  int64_t batch = n.integer("batch_dims", 0), depth = shapeOf(indices).back();
  if (batch < 0 || batch >= rankOf(indices) || batch >= rankOf(data) || depth < 1 || depth > rankOf(data) - batch ||
      shapeOf(indices).take_front(batch) != shapeOf(data).take_front(batch))
    n.fail("its indices do not fit its data");
  ArrayRef<int64_t> grid = shapeOf(indices).drop_back();
  Values components; // batch dimensions index themselves
  for (int64_t d = 0; d < batch; ++d) components.push_back(n.b.indexAlong(grid, d));
  for (int64_t i = 0; i < depth; ++i) components.push_back(component(n.b, indices, i));
  if (Value moved = gatherGrid(n, data, components, grid)) return {moved};
  int64_t indexed = batch + depth, own = std::min(ownDims(components, grid, shapeOf(data)), indexed - 1);
  Value index = linearIndex(n, ArrayRef(components).drop_front(own), shapeOf(data).slice(own, indexed - own));
  return {n.b.gather(asRows(n, data, own, indexed), index, own, own)};
}

// Along every dimension but `axis`, an index tensor has no more elements than the data.
void needsElementIndices(Node &n, Value data, Value indices, int64_t axis) {
  for (int64_t d = 0; d < rankOf(data); ++d)
    if (d != axis && shapeOf(indices)[d] > shapeOf(data)[d])
      n.fail("its indices are larger than its data along dimension " + Twine(d));
}

// An op on the elements of `data` that `indices` name along `axis`: in every other dimension an element counts itself.
struct ElementIndex {
  int64_t own;   // dimensions in which each entry of the data has its own indices
  Value indices; // of elements in what follows them
};
ElementIndex elementIndex(Node &n, Value data, Value indices, int64_t axis) {
  int64_t own = 0;
  while (own < axis && shapeOf(data)[own] == shapeOf(indices)[own]) ++own;
  Values components;
  for (int64_t d = own; d < rankOf(data); ++d)
    components.push_back(d == axis ? indices : n.b.indexAlong(shapeOf(indices), d));
  return {own, linearIndex(n, components, shapeOf(data).drop_front(own))};
}

Values gatherElements(Node &n) {
  Value data = n.in(0), indices = n.in(1);
  if (rankOf(data) != rankOf(indices)) n.fail("needs indices of the data's rank");
  int64_t axis = n.axis(n.integer("axis", 0), rankOf(data));
  needsElementIndices(n, data, indices, axis);
  auto [own, index] = elementIndex(n, data, indices, axis);
  return {n.b.gather(asRows(n, data, own, rankOf(data)), index, own, own)};
}

// scatter() by max, min or mul: each row of the data looks at all updates of its entry.
Value reducedInto(Node &n, Value data, Value index, Value updates, int64_t own, const std::string &reduction) {
  ArrayRef<int64_t> shape = shapeOf(data);
  const int64_t entries = product(shape.take_front(own)), rows = shape[own], width = product(shape.drop_front(own + 1));
  const int64_t count = entries == 0 ? 0 : typeOf(index).getNumElements() / entries;
  if (entries == 0 || rows == 0 || width == 0 || count == 0) return data;
  const Dims pairs{entries, rows, count}, all{entries, rows, count, width};
  n.b.checkSize(all);
  n.needsFew(typeOf(data).getNumElements() * count);
  Value target = n.b.cast(n.b.reshape(index, {entries, 1, count}), n.b.builder.getI64Type());
  Value hits = n.b.reshape(n.b.binary<onnx::EqualOp>(n.b.broadcastTo(target, pairs), n.b.indexAlong(pairs, 1)),
                           {entries, rows, count, 1});
  Value old = n.b.reshape(data, {entries, rows, 1, width}), given = n.b.reshape(updates, {entries, 1, count, width});
  Value result;
  if (reduction == "mul") {
    Value factors = n.b.where(hits, given, n.b.broadcastTo(n.b.scalar(given, 1), all));
    result = n.b.mul(old, productAlong(n, factors, 2));
  } else {
    const bool isMax = reduction == "max";
    // An element that no update names changes nothing: an infinity, or the row itself.
    Value neutral = isFloatTensor(data) ? n.b.scalar(data, isMax ? -INFINITY : INFINITY) : old;
    Value found = n.b.where(hits, given, neutral);
    result = isMax ? n.b.binary<onnx::MaxOp>(old, n.b.reduceMax(found, {2}, true))
                   : n.b.binary<onnx::MinOp>(old, n.b.reduceMin(found, {2}, true));
  }
  return n.b.reshape(result, shape);
}

// data (its rows along dimension `own`) with updates at `index` (that many dimensions that both have, then any;
// updates: that shape, then the row).
Value scatter(Node &n, Value data, Value index, Value updates, int64_t own, const std::string &reduction) {
  auto rows = n.b.builder.getI64IntegerAttr(shapeOf(data)[own]), axis = n.b.builder.getI64IntegerAttr(own);
  auto sum = [&](Value values) {
    return n.b.create<onnx::ScatterAddOp>(index, values, axis, rows, ArrayAttr(), IntegerAttr(), axis);
  };
  // Known neighbours are put between what stands before and after them.
  const int64_t count = own == 0 ? typeOf(index).getNumElements() : 0, all = shapeOf(data)[0];
  std::optional<int64_t> first = own == 0 ? firstOfConsecutive(index) : std::nullopt;
  if (reduction == "none" && first && *first >= 0 && *first + count <= all) {
    Dims shape(shapeOf(data));
    shape[0] = count;
    Values parts;
    if (*first > 0) parts.push_back(n.b.slice(data, 0, 0, *first));
    parts.push_back(n.b.reshape(updates, shape));
    if (*first + count < all) parts.push_back(n.b.slice(data, 0, *first + count, all - *first - count));
    return parts.size() == 1 ? parts[0] : n.b.concat(parts, 0);
  }
  if (reduction == "add") return n.b.add(data, sum(updates));
  if (reduction != "none") return reducedInto(n, data, index, updates, own, reduction);
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
  if (depth < 1 || depth > rankOf(data)) n.fail("its indices do not fit its data");
  Dims expected(shapeOf(indices).drop_back());
  llvm::append_range(expected, shapeOf(data).drop_front(depth));
  n.needsShape(2, expected);
  Values components;
  for (int64_t i = 0; i < depth; ++i) components.push_back(component(n.b, indices, i));
  ArrayRef<int64_t> grid = shapeOf(indices).drop_back();
  int64_t own = std::max<int64_t>(0, std::min(ownDims(components, grid, shapeOf(data)), depth - 1));
  Value index = linearIndex(n, ArrayRef(components).drop_front(own), shapeOf(data).slice(own, depth - own));
  Value result = scatter(n, asRows(n, data, own, depth), index, updates, own, n.text("reduction", "none"));
  return {n.b.reshape(result, shapeOf(data))};
}

Values scatterElements(Node &n) {
  Value data = n.in(0), indices = n.in(1), updates = n.in(2);
  if (rankOf(data) != rankOf(indices)) n.fail("needs indices of the data's rank");
  int64_t axis = n.axis(n.integer("axis", 0), rankOf(data));
  needsElementIndices(n, data, indices, axis);
  n.needsShape(2, shapeOf(indices));
  auto [own, index] = elementIndex(n, data, indices, axis);
  Value result = scatter(n, asRows(n, data, own, rankOf(data)), index, updates, own, n.text("reduction", "none"));
  return {n.b.reshape(result, shapeOf(data))};
}

// Each pooled value at its index, which counts in the whole unpooled tensor. Windows that overlap may name an element
// more than once, always with the same value.
Values maxUnpool(Node &n) {
  Value x = n.in(0), indices = n.in(1);
  const int64_t rank = rankOf(x), spatial = rank - 2;
  auto kernel = n.ints("kernel_shape");
  if (spatial < 1 || !kernel || int64_t(kernel->size()) != spatial)
    n.fail("needs an operand [N, C, spatial] and kernel_shape");
  n.needsShape(1, shapeOf(x));
  const Dims strides = n.ints("strides", Dims(spatial, 1)), pads = n.ints("pads", Dims(2 * spatial, 0));
  Dims shape(shapeOf(x).take_front(2)), high(rank, 0);
  for (int64_t d = 0; d < spatial; ++d)
    shape.push_back((shapeOf(x)[d + 2] - 1) * strides[d] - pads[d] - pads[spatial + d] + (*kernel)[d]);
  if (!elementsWithin(shape)) n.fail("its kernel and pads leave no image");
  const Dims wanted = n.has(2) ? n.constantInts(2) : shape;
  if (wanted.size() != shape.size()) n.fail("its output_shape has " + Twine(wanted.size()) + " sizes");
  for (int64_t d = 0; d < rank; ++d) {
    high[d] = wanted[d] - shape[d];
    if (high[d] < 0 || (d < 2 && high[d])) n.fail("its output_shape is smaller than what its kernel makes");
  }
  const int64_t count = typeOf(x).getNumElements(), all = product(shape);
  auto zero = n.b.builder.getI64IntegerAttr(0), rows = n.b.builder.getI64IntegerAttr(all);
  Value index = n.b.reshape(indices, {count});
  auto sum = [&](Value values) {
    return n.b.create<onnx::ScatterAddOp>(index, values, zero, rows, ArrayAttr(), IntegerAttr(), zero);
  };
  Value hits = sum(n.b.splat(RankedTensorType::get({count}, elementOf(x)), 1));
  Value total = sum(n.b.reshape(x, {count}));
  Value whole = n.b.div(total, n.b.binary<onnx::MaxOp>(hits, n.b.broadcastTo(n.b.scalar(hits, 1), shapeOf(hits))));
  return {n.b.pad(n.b.reshape(whole, shape), Dims(rank, 0), high, 0)};
}

// The first `sequence_lens[b]` times of each entry backwards, the others as they are.
Values reverseSequence(Node &n) {
  Value x = n.in(0);
  const int64_t batch = n.axis(n.integer("batch_axis", 1), rankOf(x)),
                time = n.axis(n.integer("time_axis", 0), rankOf(x));
  if (batch == time || batch > 1 || time > 1) n.fail("its batch_axis and time_axis must be 0 and 1, or 1 and 0");
  Dims swapped = countUp(rankOf(x));
  std::swap(swapped[0], swapped[1]);
  Value rows = batch == 0 ? x : n.b.transpose(x, swapped);
  const int64_t entries = shapeOf(rows)[0], times = shapeOf(rows)[1];
  n.needsShape(1, {entries});
  const Dims grid{entries, times};
  Value at = n.b.indexAlong(grid, 1);
  Value length = n.b.broadcastTo(n.b.reshape(n.b.cast(n.in(1), n.b.builder.getI64Type()), {entries, 1}), grid);
  Value back = n.b.sub(n.b.sub(length, at), 1);
  Value from = n.b.where(n.b.binary<onnx::LessOp>(at, length), back, at);
  Value y = n.b.gather(rows, from, 1, 1);
  return {batch == 0 ? y : n.b.transpose(y, swapped)};
}

// A cache whose positions from write_indices[b] on along `axis` are the update's; circular: past the end from the
// start.
Values tensorScatter(Node &n) {
  Value cache = n.in(0), update = n.in(1);
  const int64_t rank = rankOf(cache), axis = n.axis(n.integer("axis", -2), rank);
  if (axis == 0) n.fail("its axis must not be the batch's");
  Dims expected(shapeOf(cache));
  if (rankOf(update) == rank) expected[axis] = std::min(shapeOf(update)[axis], expected[axis]);
  n.needsShape(1, expected);
  Dims front = countUp(rank), back;
  front.erase(front.begin() + axis);
  front.insert(front.begin() + 1, axis);
  for (int64_t d = 0; d < rank; ++d) back.push_back(llvm::find(front, d) - front.begin());
  const int64_t batch = shapeOf(cache)[0], length = shapeOf(cache)[axis];
  const Dims grid{batch, shapeOf(update)[axis]};
  n.needsShape(2, {batch});
  Value at = n.b.indexAlong(grid, 1);
  if (n.has(2)) at = n.b.add(at, n.b.reshape(n.b.cast(n.in(2), n.b.builder.getI64Type()), {batch, 1}));
  if (n.text("mode", "linear") == "circular") at = n.b.binary<onnx::ModOp>(at, n.b.scalar(at, double(length)));
  Value result = scatter(n, n.b.transpose(cache, front), at, n.b.transpose(update, front), 1, "none");
  return {n.b.transpose(result, back)};
}

// The entries where a condition that is known holds.
Values compress(Node &n) {
  Value x = n.in(0);
  const bool isFlat = !n.attribute("axis");
  if (isFlat) x = n.b.reshape(x, {typeOf(x).getNumElements()});
  const int64_t axis = isFlat ? 0 : n.axis(n.integer("axis", 0), rankOf(x));
  const Dims condition = n.constantInts(1);
  if (int64_t(condition.size()) > shapeOf(x)[axis])
    n.fail("has " + Twine(condition.size()) + " conditions for " + Twine(shapeOf(x)[axis]) + " entries");
  Dims kept;
  for (auto [i, holds] : llvm::enumerate(condition))
    if (holds) kept.push_back(int64_t(i));
  return {n.b.pick(x, axis, kept)};
}

// Which entries of a known tensor differ: the first of each, which of them every entry is, how many are the same.
Values unique(Node &n) {
  runtime::HostTensor known = n.constantTensor(0);
  Value x = n.in(0);
  const bool isFlat = !n.attribute("axis");
  if (isFlat) x = n.b.reshape(x, {known.elements()});
  const int64_t axis = isFlat ? 0 : n.axis(n.integer("axis", 0), rankOf(x)), count = shapeOf(x)[axis];
  const int64_t inner = product(shapeOf(x).drop_front(axis + 1)), outer = product(shapeOf(x).take_front(axis));
  const std::vector<double> values = known.reals();
  std::vector<std::vector<double>> entries(static_cast<size_t>(count));
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < count; ++i)
      for (int64_t k = 0; k < inner; ++k) entries[size_t(i)].push_back(values[size_t((o * count + i) * inner + k)]);
  std::map<std::vector<double>, int64_t> firsts; // in ascending order
  for (int64_t i = 0; i < count; ++i) firsts.try_emplace(entries[size_t(i)], i);
  Dims order;
  for (const auto &[entry, first] : firsts) order.push_back(first);
  if (!n.integer("sorted", 1)) llvm::sort(order);
  Dims inverse, counts(order.size(), 0);
  for (int64_t i = 0; i < count; ++i) {
    inverse.push_back(llvm::find(order, firsts.at(entries[size_t(i)])) - order.begin());
    ++counts[inverse.back()];
  }
  return {n.b.pick(x, axis, order), n.b.integers(order), n.b.integers(inverse), n.b.integers(counts)};
}

} // namespace

void addIndexing(Rules &rules) {
  rules.add("Gather", gather);
  rules.add("GatherND", gatherND);
  rules.add("GatherElements", gatherElements);
  rules.add("ScatterND", scatterND);
  rules.add("ScatterElements", scatterElements);
  rules.add("Scatter", scatterElements);
  rules.add("MaxUnpool", maxUnpool);
  rules.add("ReverseSequence", reverseSequence);
  rules.add("TensorScatter", tensorScatter);
  rules.add("Compress", compress);
  rules.add("Unique", unique);
}

} // namespace cleave::normalize
