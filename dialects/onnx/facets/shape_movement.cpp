// Shape facet of the movement and indexing core ops.
#include "dialects/onnx/formula.h"

using namespace mlir;
namespace cleave::onnx {
namespace {

using Types = SmallVectorImpl<Type>;

int64_t product(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return count;
}

bool isAxis(int64_t axis, RankedTensorType type) { return axis >= 0 && axis < type.getRank(); }

} // namespace

LogicalResult ReshapeOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto x = tensorType(adaptor.getX());
  if (product(adaptor.getShape()) != x.getNumElements())
    return emitOptionalError(loc, "cannot reshape ", x, " to ", adaptor.getShape().size(), " dimensions of ",
                             product(adaptor.getShape()), " elements");
  results.push_back(x.clone(adaptor.getShape()));
  return success();
}

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

LogicalResult RollOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto x = tensorType(adaptor.getX());
  if (!isAxis(adaptor.getDim(), x)) return emitOptionalError(loc, "has no dimension ", adaptor.getDim());
  results.push_back(x);
  return success();
}

LogicalResult CumSumOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto x = tensorType(adaptor.getX());
  if (!isAxis(adaptor.getAxis(), x)) return emitOptionalError(loc, "has no axis ", adaptor.getAxis());
  results.push_back(x);
  return success();
}

} // namespace cleave::onnx
