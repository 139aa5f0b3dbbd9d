// Facets of the core ops that move elements, op by op: shape, where a strided view reads, factor rule, gradient. A
// dimension that an op cuts, joins or pads stays whole. Each is linear; its gradient is the transposed movement.
#include "dialects/onnx/facets/expressions.h"
#include "dialects/onnx/formula.h"
#include <numeric>

using namespace mlir;
namespace cleave::onnx {
using namespace rules;
namespace {

using Types = SmallVectorImpl<Type>;
using Grads = SmallVectorImpl<Value>;
using Dims = SmallVector<int64_t>;

int64_t product(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

bool isAxis(int64_t axis, RankedTensorType type) { return axis >= 0 && axis < type.getRank(); }

} // namespace

FactorRule rules::stridedView(Value x, Value y, const StridedMap &map) {
  FactorRule rule;
  TensorFactors in, out(shape(y).size());
  size_t next = 0;
  auto repeatUpTo = [&](size_t end) { // dimensions of y that read none of x
    for (; next < end; ++next)
      if (!llvm::is_contained(map.dims, int64_t(next))) out[next] = {rule.add(shape(y)[next])};
  };
  for (auto [size, dim] : llvm::zip_equal(shape(x), map.dims)) {
    repeatUpTo(size_t(dim));
    const bool isKept = size == shape(y)[dim];
    in.push_back({rule.add(size, isKept ? Factor::Parallel : Factor::Whole)});
    out[dim] = isKept ? in.back() : std::vector<int64_t>{rule.add(shape(y)[dim], Factor::Whole)};
  }
  repeatUpTo(out.size());
  rule.operands = {in};
  rule.results = {out};
  linearIn(rule, {0});
  return rule;
}

FactorRule rules::sizeBySize(Value x, Value y, bool isLinear) {
  const size_t rank = shape(x).size();
  FactorRule rule =
      stridedView(x, y, {llvm::to_vector(llvm::seq<int64_t>(0, int64_t(rank))), Dims(rank, 0), Dims(rank, 1)});
  if (!isLinear) rule.linearity = FactorRule::NotLinear, rule.linearOperands.clear();
  return rule;
}

//===--- Reshape --------------------------------------------------------------------------------------------------===//

LogicalResult ReshapeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto x = tensorType(adaptor.getX());
  if (product(adaptor.getShape()) != x.getNumElements())
    return emitOptionalError(loc, "cannot reshape ", x, " to ", adaptor.getShape().size(), " dimensions of ",
                             product(adaptor.getShape()), " elements");
  results.push_back(x.clone(adaptor.getShape()));
  return success();
}

// The common refinement of both shapes: [12,2] -> [3,8] is [(3 4),2] -> [3,(4 2)]. Walks both from the major end; at
// every step the greatest common divisor of what is left of the two current dimensions is a shared factor. Where two
// remainders have no common divisor ([3,4] -> [2,6]) the rest of both dimensions, up to where the products meet, is
// whole. Without elements there is nothing to split: every dimension is whole.
FactorRule ReshapeOp::getFactorRule() {
  llvm::ArrayRef<int64_t> from = shape(getX()), to = shape(getY());
  FactorRule rule;
  TensorFactors in(from.size()), out(to.size());
  if (llvm::is_contained(from, 0)) {
    for (size_t d = 0; d < from.size(); ++d) in[d].push_back(rule.add(from[d], Factor::Whole));
    for (size_t d = 0; d < to.size(); ++d) out[d].push_back(rule.add(to[d], Factor::Whole));
    rule.operands = {in};
    rule.results = {out};
    return rule;
  }
  size_t i = 0, j = 0;
  int64_t a = 1, b = 1; // what is left of dimensions i-1 and j-1
  for (;;) {
    while (a == 1 && i < from.size()) a = from[i++];
    while (b == 1 && j < to.size()) b = to[j++];
    if (a == 1 || b == 1) break;
    if (int64_t common = std::gcd(a, b); common > 1) {
      int64_t factor = rule.add(common);
      in[i - 1].push_back(factor);
      out[j - 1].push_back(factor);
      a /= common;
      b /= common;
      continue;
    }
    int64_t left = a, right = b;
    in[i - 1].push_back(rule.add(a, Factor::Whole));
    out[j - 1].push_back(rule.add(b, Factor::Whole));
    while (left != right) {
      if (left < right) {
        in[i].push_back(rule.add(from[i], Factor::Whole));
        left *= from[i++];
      } else {
        out[j].push_back(rule.add(to[j], Factor::Whole));
        right *= to[j++];
      }
    }
    a = b = 1;
  }
  rule.operands = {in};
  rule.results = {out};
  linearIn(rule, {0});
  return rule;
}

LogicalResult ReshapeOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>,
                                       Grads &operandGrads) {
  operandGrads.push_back(Formula(builder, getLoc()).make<ReshapeOp>(resultGrads[0], tensorType(getX()).getShape()));
  return success();
}

//===--- Transpose ------------------------------------------------------------------------------------------------===//

LogicalResult TransposeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                            Types &results) {
  auto x = tensorType(adaptor.getX());
  ArrayRef<int64_t> perm = adaptor.getPerm();
  SmallVector<bool> seen(x.getRank());
  SmallVector<int64_t> shape;
  if (static_cast<int64_t>(perm.size()) != x.getRank()) return emitOptionalError(loc, "perm does not fit ", x);
  for (int64_t dim : perm) {
    if (!isAxis(dim, x) || seen[dim]) return emitOptionalError(loc, "perm is no permutation");
    seen[dim] = true;
    shape.push_back(x.getDimSize(dim));
  }
  results.push_back(x.clone(shape));
  return success();
}

StridedMap TransposeOp::getStridedMap() {
  StridedMap map{Dims(getPerm()), Dims(getPerm().size(), 0), Dims(getPerm().size(), 1)};
  for (auto [to, from] : llvm::enumerate(getPerm())) map.dims[from] = int64_t(to);
  return map;
}

LogicalResult TransposeOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>,
                                         Grads &operandGrads) {
  Dims inverse(getPerm().size());
  for (auto [i, dim] : llvm::enumerate(getPerm())) inverse[dim] = static_cast<int64_t>(i);
  operandGrads.push_back(Formula(builder, getLoc()).make<TransposeOp>(resultGrads[0], inverse));
  return success();
}

//===--- Broadcast ------------------------------------------------------------------------------------------------===//

LogicalResult BroadcastOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                            Types &results) {
  auto x = tensorType(adaptor.getX());
  ArrayRef<int64_t> shape = adaptor.getShape(), dims = adaptor.getDims();
  if (static_cast<int64_t>(dims.size()) != x.getRank()) return emitOptionalError(loc, "dims does not fit ", x);
  for (auto [i, dim] : llvm::enumerate(dims)) {
    if (dim < 0 || dim >= static_cast<int64_t>(shape.size()) || (i > 0 && dims[i - 1] >= dim))
      return emitOptionalError(loc, "dims must increase and name dimensions of the result");
    if (shape[dim] != x.getDimSize(i))
      return emitOptionalError(loc, "dimension ", i, " of ", x, " does not match size ", shape[dim],
                               " (a size 1 must be reshaped away)");
  }
  results.push_back(x.clone(shape));
  return success();
}

StridedMap BroadcastOp::getStridedMap() {
  return {Dims(getDims()), Dims(getDims().size(), 0), Dims(getDims().size(), 1)};
}

LogicalResult BroadcastOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>,
                                         Grads &operandGrads) {
  Dims repeated;
  for (int64_t d = 0, rank = tensorType(getY()).getRank(); d < rank; ++d)
    if (!llvm::is_contained(getDims(), d)) repeated.push_back(d);
  operandGrads.push_back(Formula(builder, getLoc()).reduceSum(resultGrads[0], repeated));
  return success();
}

//===--- Slice ----------------------------------------------------------------------------------------------------===//

LogicalResult SliceOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto x = tensorType(adaptor.getX());
  size_t rank = x.getRank();
  if (adaptor.getStarts().size() != rank || adaptor.getSizes().size() != rank || adaptor.getSteps().size() != rank)
    return emitOptionalError(loc, "starts, sizes and steps must have one entry a dimension of ", x);
  for (size_t i = 0; i < rank; ++i) {
    int64_t start = adaptor.getStarts()[i], size = adaptor.getSizes()[i], step = adaptor.getSteps()[i];
    if (step < 1 || start < 0 || size < 0 || (size > 0 && start + (size - 1) * step >= x.getDimSize(i)))
      return emitOptionalError(loc, "slice leaves dimension ", i, " of ", x);
  }
  results.push_back(x.clone(adaptor.getSizes()));
  return success();
}

StridedMap SliceOp::getStridedMap() {
  return {llvm::to_vector(llvm::seq<int64_t>(0, getStarts().size())), Dims(getStarts()), Dims(getSteps())};
}

// The elements cut off have no gradient: zeros before, after and between.
LogicalResult SliceOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>, Grads &operandGrads) {
  Formula f(builder, getLoc());
  auto type = tensorType(getX());
  if (llvm::is_contained(getSizes(), 0)) {
    operandGrads.push_back(f.constant(type, 0));
    return success();
  }
  Dims low(getStarts()), high, interior;
  for (int64_t d = 0; d < type.getRank(); ++d) {
    interior.push_back(getSteps()[d] - 1);
    high.push_back(type.getDimSize(d) - (getStarts()[d] + (getSizes()[d] - 1) * getSteps()[d] + 1));
  }
  operandGrads.push_back(f.make<PadOp>(resultGrads[0], low, high, interior, APFloat(0.0)));
  return success();
}

//===--- Pad ------------------------------------------------------------------------------------------------------===//

LogicalResult PadOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto x = tensorType(adaptor.getX());
  size_t rank = x.getRank();
  if (adaptor.getLow().size() != rank || adaptor.getHigh().size() != rank || adaptor.getInterior().size() != rank)
    return emitOptionalError(loc, "low, high and interior must have one entry a dimension of ", x);
  SmallVector<int64_t> shape;
  for (size_t i = 0; i < rank; ++i) {
    int64_t low = adaptor.getLow()[i], high = adaptor.getHigh()[i], interior = adaptor.getInterior()[i];
    if (low < 0 || high < 0 || interior < 0) return emitOptionalError(loc, "negative padding: slice instead");
    int64_t size = x.getDimSize(i);
    shape.push_back(low + high + size + std::max<int64_t>(size - 1, 0) * interior);
  }
  results.push_back(x.clone(shape));
  return success();
}

LogicalResult PadOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>, Grads &operandGrads) {
  Dims steps;
  for (int64_t between : getInterior()) steps.push_back(between + 1);
  operandGrads.push_back(
      Formula(builder, getLoc()).make<SliceOp>(resultGrads[0], getLow(), tensorType(getX()).getShape(), steps));
  return success();
}

//===--- Concat ---------------------------------------------------------------------------------------------------===//

LogicalResult ConcatOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto operands = adaptor.getXs();
  if (operands.empty()) return emitOptionalError(loc, "needs at least one operand");
  auto first = tensorType(operands.front());
  int64_t axis = adaptor.getAxis();
  if (!isAxis(axis, first)) return emitOptionalError(loc, "has no axis ", axis);
  SmallVector<int64_t> shape(first.getShape());
  for (Value operand : operands.drop_front()) {
    auto type = tensorType(operand);
    if (type.getRank() != first.getRank() || type.getElementType() != first.getElementType())
      return emitOptionalError(loc, "cannot join ", first, " and ", type);
    for (int64_t dim = 0; dim < type.getRank(); ++dim)
      if (dim != axis && type.getDimSize(dim) != first.getDimSize(dim))
        return emitOptionalError(loc, "cannot join ", first, " and ", type, " along ", axis);
    shape[axis] += type.getDimSize(axis);
  }
  results.push_back(first.clone(shape));
  return success();
}

FactorRule ConcatOp::getFactorRule() {
  FactorRule rule;
  TensorFactors out = parallel(rule, shape(getY()));
  size_t axis = static_cast<size_t>(getAxis());
  rule.factors[out[axis][0]].kind = Factor::Whole;
  for (mlir::Value x : getXs()) {
    TensorFactors in = out;
    in[axis] = {rule.add(shape(x)[axis], Factor::Whole)};
    rule.operands.push_back(in);
  }
  rule.results = {out};
  linearTogether(rule);
  return rule;
}

LogicalResult ConcatOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                      Grads &operandGrads) {
  Formula f(builder, getLoc());
  Dims starts(tensorType(getY()).getRank(), 0), steps(starts.size(), 1);
  for (auto [x, want] : llvm::zip_equal(getXs(), wanted)) {
    ArrayRef<int64_t> sizes = tensorType(x).getShape();
    operandGrads.push_back(want ? f.make<SliceOp>(resultGrads[0], starts, sizes, steps) : Value());
    starts[getAxis()] += sizes[getAxis()];
  }
  return success();
}

//===--- Gather ---------------------------------------------------------------------------------------------------===//

LogicalResult GatherOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto table = tensorType(adaptor.getTable()), indices = tensorType(adaptor.getIndices());
  int64_t axis = adaptor.getAxis();
  if (!isAxis(axis, table)) return emitOptionalError(loc, "has no axis ", axis);
  if (!indices.getElementType().isInteger()) return emitOptionalError(loc, "wants integer indices");
  int64_t batch = adaptor.getBatchDims();
  if (batch < 0 || (batch && batch != axis) || batch > indices.getRank() ||
      table.getShape().take_front(batch) != indices.getShape().take_front(batch))
    return emitOptionalError(loc, "indices ", indices, " and table ", table, " do not share ", batch, " dimensions");
  SmallVector<int64_t> shape(table.getShape().take_front(axis));
  llvm::append_range(shape, indices.getShape().drop_front(batch));
  llvm::append_range(shape, table.getShape().drop_front(axis + 1));
  results.push_back(table.clone(shape));
  return success();
}

// Splitting the looked-up dimension leaves each device with the rows it has, zero elsewhere: a partial sum. The rows of
// a batch stay whole.
FactorRule GatherOp::getFactorRule() {
  size_t axis = static_cast<size_t>(getAxis()), batch = static_cast<size_t>(getBatchDims());
  FactorRule rule;
  TensorFactors table = parallel(rule, shape(getTable()));
  rule.factors[table[axis][0]].kind = batch ? Factor::Whole : Factor::Reduced;
  TensorFactors indices(table.begin(), table.begin() + batch);
  for (int64_t size : shape(getIndices()).drop_front(batch)) indices.push_back({rule.add(size)});
  TensorFactors out(table.begin(), table.begin() + axis);
  out.insert(out.end(), indices.begin() + batch, indices.end());
  out.insert(out.end(), table.begin() + axis + 1, table.end());
  rule.operands = {table, indices};
  rule.results = {out};
  linearIn(rule, {0});
  return rule;
}

LogicalResult GatherOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                      Grads &operandGrads) {
  int64_t axis = getAxis(), rows = tensorType(getTable()).getDimSize(axis);
  Formula f(builder, getLoc());
  Value updates = resultGrads[0];
  if (const auto row = static_cast<int64_t>(getPaddingRow()); row >= 0 && wanted[0]) {
    Value isPadding = f.make<EqualOp>(getIndices(), f.like(getIndices(), static_cast<double>(row)));
    Dims along(static_cast<size_t>(tensorType(getIndices()).getRank()));
    std::iota(along.begin(), along.end(), axis);
    isPadding = f.make<BroadcastOp>(isPadding, tensorType(updates).getShape(), along);
    updates = f.where(isPadding, f.like(updates, 0), updates);
  }
  operandGrads.push_back(wanted[0]
                             ? f.make<ScatterAddOp>(getIndices(), updates, axis, rows,
                                                    /*shard_axes=*/ArrayAttr(), getGlobalRowsAttr(), getBatchDims())
                             : Value());
  operandGrads.push_back(Value());
  return success();
}

//===--- ScatterAdd -----------------------------------------------------------------------------------------------===//

LogicalResult ScatterAddOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                             Types &results) {
  auto indices = tensorType(adaptor.getIndices()), updates = tensorType(adaptor.getUpdates());
  int64_t axis = adaptor.getAxis(), batch = adaptor.getBatchDims(), count = indices.getRank() - batch;
  if (axis < 0 || batch < 0 || (batch && batch != axis) || count < 0 || axis + count > updates.getRank() ||
      updates.getShape().take_front(batch) != indices.getShape().take_front(batch) ||
      updates.getShape().slice(axis, count) != indices.getShape().drop_front(batch))
    return emitOptionalError(loc, "updates ", updates, " do not fit indices ", indices, " at axis ", axis);
  SmallVector<int64_t> shape(updates.getShape().take_front(axis));
  shape.push_back(adaptor.getRows());
  llvm::append_range(shape, updates.getShape().drop_front(axis + count));
  results.push_back(updates.clone(shape));
  return success();
}

FactorRule ScatterAddOp::getFactorRule() {
  size_t axis = static_cast<size_t>(getAxis()), batch = static_cast<size_t>(getBatchDims());
  FactorRule rule;
  TensorFactors out = parallel(rule, shape(getY())), indices(out.begin(), out.begin() + batch);
  if (batch) rule.factors[out[axis][0]].kind = Factor::Whole;
  for (int64_t size : shape(getIndices()).drop_front(batch)) indices.push_back({rule.add(size, Factor::Reduced)});
  TensorFactors updates(out.begin(), out.begin() + axis);
  updates.insert(updates.end(), indices.begin() + batch, indices.end());
  updates.insert(updates.end(), out.begin() + axis + 1, out.end());
  rule.operands = {indices, updates};
  rule.results = {out};
  linearIn(rule, {1});
  return rule;
}

LogicalResult ScatterAddOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool> wanted,
                                          Grads &operandGrads) {
  operandGrads.push_back(Value());
  operandGrads.push_back(wanted[1]
                             ? Formula(builder, getLoc())
                                   .make<GatherOp>(resultGrads[0], getIndices(), getAxis(),
                                                   /*shard_axes=*/ArrayAttr(), getGlobalRowsAttr(), getBatchDims())
                             : Value());
  return success();
}

//===--- Roll -----------------------------------------------------------------------------------------------------===//

LogicalResult RollOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto x = tensorType(adaptor.getX());
  if (!isAxis(adaptor.getDim(), x)) return emitOptionalError(loc, "has no dimension ", adaptor.getDim());
  results.push_back(x);
  return success();
}

LogicalResult RollOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>, Grads &operandGrads) {
  operandGrads.push_back(
      Formula(builder, getLoc()).make<RollOp>(resultGrads[0], getDim(), -static_cast<int64_t>(getDistance())));
  return success();
}

//===--- CumSum ---------------------------------------------------------------------------------------------------===//

LogicalResult CumSumOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto x = tensorType(adaptor.getX());
  if (!isAxis(adaptor.getAxis(), x)) return emitOptionalError(loc, "has no axis ", adaptor.getAxis());
  results.push_back(x);
  return success();
}

FactorRule CumSumOp::getFactorRule() {
  FactorRule rule;
  TensorFactors factors = parallel(rule, shape(getX()));
  rule.factors[factors[getAxis()][0]].kind = Factor::Whole;
  rule.operands = {factors};
  rule.results = {factors};
  linearIn(rule, {0});
  return rule;
}

LogicalResult CumSumOp::buildGradient(OpBuilder &builder, ValueRange resultGrads, ArrayRef<bool>, Grads &operandGrads) {
  operandGrads.push_back(
      Formula(builder, getLoc()).make<CumSumOp>(resultGrads[0], getAxis(), getExclusive(), /*reverse=*/!getReverse()));
  return success();
}

} // namespace cleave::onnx
