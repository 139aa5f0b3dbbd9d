// Reductions, running sums, index of the largest.
#include "compiler/normalize/node.h"
#include <cmath>

using namespace mlir;
namespace cleave::normalize {
namespace {

struct Reduction {
  Value x;
  Dims axes;
  bool keep;
};
// Axes are an attribute before opset 13 (ReduceSum) or 18 (the others), an input from then on. None: all, unless
// noop_with_empty_axes.
Reduction reduction(Node &n) {
  Value x = n.in(0);
  auto given = n.intsOrInput("axes", 1);
  bool none = !given || given->empty();
  Dims axes = !none ? n.axes(*given, rankOf(x)) : n.integer("noop_with_empty_axes", 0) ? Dims() : countUp(rankOf(x));
  return {x, axes, n.integer("keepdims", 1) != 0};
}
Value sum(Node &n, const Reduction &r, Value x) { return n.b.reduceSum(x, r.axes, r.keep); }

Values reduceSum(Node &n) {
  Reduction r = reduction(n);
  return {sum(n, r, r.x)};
}
Values reduceMean(Node &n) {
  Reduction r = reduction(n);
  return {n.b.mean(r.x, r.axes, r.keep)};
}
// i1 has no maximum of its own: it is an or.
template <Value (CoreBuilder::*reduce)(Value, ArrayRef<int64_t>, bool)> Values reduceExtreme(Node &n) {
  Reduction r = reduction(n);
  if (!elementOf(r.x).isInteger(1)) return {(n.b.*reduce)(r.x, r.axes, r.keep)};
  Value wide = n.b.cast(r.x, n.b.builder.getIntegerType(32));
  return {n.b.cast((n.b.*reduce)(wide, r.axes, r.keep), elementOf(r.x))};
}
Values reduceL1(Node &n) {
  Reduction r = reduction(n);
  return {sum(n, r, n.b.unary<onnx::AbsOp>(r.x))};
}
Values reduceL2(Node &n) {
  Reduction r = reduction(n);
  Value total = sum(n, r, n.b.mul(r.x, r.x));
  if (isFloatTensor(r.x)) return {n.b.unary<onnx::SqrtOp>(total)};
  return {n.b.cast(n.b.unary<onnx::SqrtOp>(n.b.cast(total, n.b.builder.getF64Type())), elementOf(r.x))};
}
Values reduceSumSquare(Node &n) {
  Reduction r = reduction(n);
  return {sum(n, r, n.b.mul(r.x, r.x))};
}
Values reduceLogSum(Node &n) {
  Reduction r = reduction(n);
  return {n.b.unary<onnx::LogOp>(sum(n, r, r.x))};
}
Values reduceLogSumExp(Node &n) {
  Reduction r = reduction(n);
  if (r.axes.empty()) return {r.x};
  Value top = n.b.unary<onnx::StopGradientOp>(n.b.reduceMax(r.x, r.axes, true));
  // an infinite maximum must not give inf - inf
  Value finite = n.b.where(n.b.unary<onnx::IsInfOp>(top), n.b.scalar(top, 0), top);
  Value total = n.b.reduceSum(n.b.unary<onnx::ExpOp>(n.b.sub(r.x, finite)), r.axes, true);
  Value result = n.b.add(n.b.unary<onnx::LogOp>(total), finite);
  if (r.keep) return {result};
  Dims shape;
  for (auto [d, size] : llvm::enumerate(shapeOf(result)))
    if (!llvm::is_contained(r.axes, int64_t(d))) shape.push_back(size);
  return {n.b.reshape(result, shape)};
}
// There is no product primitive: halves are multiplied with each other.
Values reduceProd(Node &n) {
  Reduction r = reduction(n);
  Value x = r.x;
  for (int64_t axis : r.axes) x = productAlong(n, x, axis);
  if (r.keep) return {x};
  Dims shape;
  for (auto [d, size] : llvm::enumerate(shapeOf(x)))
    if (!llvm::is_contained(r.axes, int64_t(d))) shape.push_back(size);
  return {n.b.reshape(x, shape)};
}

Values cumSum(Node &n) {
  int64_t axis = n.axis(n.constantInt(1), rankOf(n.in(0)));
  auto flag = [&](StringRef name) { return n.integer(name, 0) ? n.b.builder.getUnitAttr() : UnitAttr(); };
  return {n.b.create<onnx::CumSumOp>(n.in(0), n.b.builder.getI64IntegerAttr(axis), flag("exclusive"), flag("reverse"))};
}

// `x` moved along `axis` by `distance` (negative: towards the start); 1 stands where nothing moves to.
Value movedAlong(Node &n, Value x, int64_t axis, int64_t distance) {
  const int64_t size = shapeOf(x)[axis], kept = size - std::abs(distance);
  Dims low(rankOf(x), 0), high(low);
  (distance > 0 ? low : high)[axis] = std::abs(distance);
  return n.b.pad(n.b.slice(x, axis, distance > 0 ? 0 : -distance, kept), low, high, 1);
}
// By doubling: after the k-th round an element is the product of the 2^k that end with it.
Values cumProd(Node &n) {
  Value x = n.in(0);
  const int64_t axis = n.axis(n.constantInt(1), rankOf(x)), size = shapeOf(x)[axis];
  const int64_t way = n.integer("reverse", 0) ? -1 : 1;
  if (size == 0) return {x};
  if (n.integer("exclusive", 0)) x = movedAlong(n, x, axis, way);
  for (int64_t reach = 1; reach < size; reach *= 2) x = n.b.mul(x, movedAlong(n, x, axis, way * reach));
  return {x};
}

// The first (or last) index of the extreme: the smallest (largest) index among the elements equal to it.
template <bool largest> Values argExtreme(Node &n) {
  Value x = n.in(0);
  int64_t axis = n.axis(n.integer("axis", 0), rankOf(x)), size = shapeOf(x)[axis];
  Value extreme = largest ? n.b.reduceMax(x, {axis}, true) : n.b.reduceMin(x, {axis}, true);
  Value index = n.b.indexAlong(shapeOf(x), axis), hit = n.b.binary<onnx::EqualOp>(x, extreme);
  bool keep = n.integer("keepdims", 1);
  if (n.integer("select_last_index", 0))
    return {n.b.reduceMax(n.b.where(hit, index, n.b.scalar(index, -1)), {axis}, keep)};
  return {n.b.reduceMin(n.b.where(hit, index, n.b.scalar(index, double(size - 1))), {axis}, keep)};
}

// 1 at the first largest element, 0 elsewhere; before opset 13 of all dimensions from `axis` on as one.
Values hardmax(Node &n) {
  Value x = n.in(0);
  int64_t axis = n.axis(n.integer("axis", n.version() >= 13 ? -1 : 1), rankOf(x));
  Dims whole(shapeOf(x));
  if (n.version() < 13) {
    Dims rows{1, 1};
    for (auto [d, size] : llvm::enumerate(whole)) rows[int64_t(d) >= axis] *= size;
    x = n.b.reshape(x, rows);
    axis = 1;
  }
  Value index = n.b.indexAlong(shapeOf(x), axis);
  Value hit = n.b.binary<onnx::EqualOp>(x, n.b.reduceMax(x, {axis}, true));
  double last = double(shapeOf(x)[axis] - 1);
  Value first = n.b.reduceMin(n.b.where(hit, index, n.b.scalar(index, last)), {axis}, true);
  return {n.b.reshape(n.b.cast(n.b.binary<onnx::EqualOp>(index, first), elementOf(x)), whole)};
}

// There is no sorting primitive: the k extremes are found one after the other. Routers of experts ask for few of few.
// The smallest index among equals comes first; the gradient goes to the elements that were found.
Values topK(Node &n) {
  Value x = n.in(0);
  int64_t axis = n.axis(n.integer("axis", -1), rankOf(x));
  int64_t k = n.version() >= 10 ? n.constantInt(1) : n.integer("k", 0);
  return topAlong(n, x, axis, k, n.integer("largest", 1));
}

} // namespace

Values topAlong(Node &n, Value x, int64_t axis, int64_t k, bool largest) {
  constexpr int64_t mostElements = 64;
  const int64_t size = shapeOf(x)[axis];
  if (k < 0 || k > size) n.fail("asks for " + Twine(k) + " of " + Twine(size) + " elements");
  if (k > mostElements) n.fail("asks for " + Twine(k) + " elements; at most " + Twine(mostElements) + " are supported");
  Value index = n.b.indexAlong(shapeOf(x), axis);
  Value last = largest ? n.b.reduceMin(x, {axis}, true) : n.b.reduceMax(x, {axis}, true), taken;
  Values values, indices;
  for (int64_t i = 0; i < k; ++i) {
    Value left = taken ? n.b.where(taken, last, x) : x;
    Value extreme = largest ? n.b.reduceMax(left, {axis}, true) : n.b.reduceMin(left, {axis}, true);
    Value hit = n.b.binary<onnx::EqualOp>(x, extreme);
    if (taken) hit = n.b.binary<onnx::AndOp>(hit, n.b.unary<onnx::NotOp>(taken));
    Value first = n.b.reduceMin(n.b.where(hit, index, n.b.scalar(index, double(size - 1))), {axis}, true);
    Value pick = n.b.binary<onnx::EqualOp>(index, first);
    values.push_back(n.b.reduceSum(n.b.where(pick, x, n.b.scalar(x, 0)), {axis}, true));
    indices.push_back(first);
    taken = taken ? n.b.binary<onnx::OrOp>(taken, pick) : pick;
  }
  if (k == 0) {
    Dims none(shapeOf(x));
    none[axis] = 0;
    return {n.b.splat(typeOf(x).clone(none), 0), n.b.splat(RankedTensorType::get(none, n.b.builder.getI64Type()), 0)};
  }
  Value chosen = n.b.concat(indices, axis);
  n.state.distinct[chosen] = axis;
  return {n.b.concat(values, axis), chosen};
}

Value productAlong(Node &n, Value x, int64_t axis) {
  if (shapeOf(x)[axis] == 0) {
    Dims shape(shapeOf(x));
    shape[axis] = 1;
    return n.b.splat(typeOf(x).clone(shape), 1);
  }
  while (shapeOf(x)[axis] > 1) {
    const int64_t size = shapeOf(x)[axis], half = size / 2;
    Value product = n.b.mul(n.b.slice(x, axis, 0, half), n.b.slice(x, axis, half, half));
    x = size % 2 ? n.b.concat({product, n.b.slice(x, axis, size - 1, 1)}, axis) : product;
  }
  return x;
}

void addReductions(Rules &rules) {
  rules.add("ReduceSum", reduceSum);
  rules.add("ReduceMean", reduceMean);
  rules.add("ReduceMax", reduceExtreme<&CoreBuilder::reduceMax>);
  rules.add("ReduceMin", reduceExtreme<&CoreBuilder::reduceMin>);
  rules.add("ReduceL1", reduceL1);
  rules.add("ReduceL2", reduceL2);
  rules.add("ReduceSumSquare", reduceSumSquare);
  rules.add("ReduceLogSum", reduceLogSum);
  rules.add("ReduceLogSumExp", reduceLogSumExp);
  rules.add("ReduceProd", reduceProd);
  rules.add("CumSum", cumSum);
  rules.add("CumProd", cumProd);
  rules.add("ArgMax", argExtreme<true>);
  rules.add("ArgMin", argExtreme<false>);
  rules.add("Hardmax", hardmax);
  rules.add("TopK", topK);
}

} // namespace cleave::normalize
