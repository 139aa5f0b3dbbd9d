// Shape facet of reductions, contractions, convolutions and pools.
#include "dialects/onnx/channels_last.h"
#include "dialects/onnx/formula.h"

using namespace mlir;
namespace cleave::onnx {
namespace {

using Types = SmallVectorImpl<Type>;

template <typename Adaptor> LogicalResult reduced(std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto x = tensorType(adaptor.getX());
  SmallVector<bool> gone(x.getRank());
  int64_t previous = -1;
  for (int64_t axis : adaptor.getAxes()) {
    if (axis <= previous || axis >= x.getRank())
      return emitOptionalError(loc, "axes must increase and name dimensions of ", x);
    gone[axis] = true;
    previous = axis;
  }
  SmallVector<int64_t> shape;
  for (auto [dim, size] : llvm::enumerate(x.getShape()))
    if (!gone[dim]) shape.push_back(size);
  results.push_back(x.clone(shape));
  return success();
}

// Output length of a window that slides over a padded dimension; negative: the window does not fit.
int64_t windowCount(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  int64_t extent = (kernel - 1) * dilation + 1;
  return size + padding < extent ? -1 : (size + padding - extent) / stride + 1;
}

template <typename Adaptor> LogicalResult checkWindow(std::optional<Location> loc, Adaptor adaptor, size_t spatial) {
  if (adaptor.getStrides().size() != spatial || adaptor.getPadsBegin().size() != spatial ||
      adaptor.getPadsEnd().size() != spatial || adaptor.getDilations().size() != spatial)
    return emitOptionalError(loc, "strides, pads and dilations must have one entry a spatial dimension (", spatial,
                             ")");
  return success();
}

// `x` has the shape [N, C, spatial]; the result lies as the adaptor says.
template <typename Adaptor>
LogicalResult slide(std::optional<Location> loc, Adaptor adaptor, RankedTensorType x, ArrayRef<int64_t> kernel,
                    int64_t channels, Types &results) {
  size_t spatial = x.getRank() - 2;
  if (kernel.size() != spatial || failed(checkWindow(loc, adaptor, spatial)))
    return emitOptionalError(loc, "the kernel does not fit ", x);
  SmallVector<int64_t> shape{x.getDimSize(0), channels};
  for (size_t i = 0; i < spatial; ++i) {
    int64_t count = windowCount(x.getDimSize(i + 2), kernel[i], adaptor.getStrides()[i],
                                adaptor.getPadsBegin()[i] + adaptor.getPadsEnd()[i], adaptor.getDilations()[i]);
    if (count < 0) return emitOptionalError(loc, "the window is larger than dimension ", i + 2, " of ", x);
    shape.push_back(count);
  }
  results.push_back(x.clone(adaptor.getChannelsLast() ? channelsLast<int64_t>(shape) : shape));
  return success();
}

RankedTensorType first(RankedTensorType type, bool isLast) {
  return type.clone(channelsFirst(type.getShape(), isLast));
}

} // namespace

LogicalResult ReduceSumOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                            Types &results) {
  return reduced(loc, adaptor, results);
}
LogicalResult ReduceMaxOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                            Types &results) {
  return reduced(loc, adaptor, results);
}
LogicalResult ReduceMinOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                            Types &results) {
  return reduced(loc, adaptor, results);
}

// The inferred type, or of 16-bit operands the same shape in f32.
static bool isProductType(TypeRange inferred, TypeRange actual) {
  auto element = cast<RankedTensorType>(inferred[0]).getElementType();
  if (inferred == actual) return true;
  bool isLow = isa<FloatType>(element) && element.getIntOrFloatBitWidth() == 16;
  return isLow && cast<RankedTensorType>(inferred[0]).clone(Float32Type::get(element.getContext())) == actual[0];
}
bool ContractOp::isCompatibleReturnTypes(TypeRange a, TypeRange b) { return isProductType(a, b); }
bool GroupedContractOp::isCompatibleReturnTypes(TypeRange a, TypeRange b) { return isProductType(a, b); }
bool ConvOp::isCompatibleReturnTypes(TypeRange a, TypeRange b) { return isProductType(a, b); }
bool ConvGradInputOp::isCompatibleReturnTypes(TypeRange a, TypeRange b) { return isProductType(a, b); }
bool ConvGradWeightOp::isCompatibleReturnTypes(TypeRange a, TypeRange b) { return isProductType(a, b); }

LogicalResult ContractOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                           Types &results) {
  auto lhs = tensorType(adaptor.getLhs()), rhs = tensorType(adaptor.getRhs());
  Type element = lhs.getElementType();
  if (isEightBitFloat(element) && isEightBitFloat(rhs.getElementType()))
    element = BFloat16Type::get(element.getContext());
  else if (element != rhs.getElementType())
    return emitOptionalError(loc, "operands differ in element type: ", lhs, " and ", rhs);
  llvm::SmallDenseMap<int64_t, int64_t> size;
  llvm::SmallDenseMap<int64_t, int> uses;
  auto record = [&](ArrayRef<int64_t> indices, RankedTensorType type) {
    if (static_cast<int64_t>(indices.size()) != type.getRank()) return false;
    llvm::SmallDenseSet<int64_t> own;
    for (auto [dim, index] : llvm::enumerate(indices)) {
      auto [at, fresh] = size.try_emplace(index, type.getDimSize(dim));
      if (index < 0 || !own.insert(index).second || at->second != type.getDimSize(dim)) return false;
      ++uses[index];
    }
    return true;
  };
  if (!record(adaptor.getLhsIndices(), lhs) || !record(adaptor.getRhsIndices(), rhs))
    return emitOptionalError(loc, "indices do not fit ", lhs, " and ", rhs);
  SmallVector<int64_t> shape;
  llvm::SmallDenseSet<int64_t> own;
  for (int64_t index : adaptor.getResultIndices()) {
    auto at = size.find(index);
    if (at == size.end() || !own.insert(index).second)
      return emitOptionalError(loc, "result index ", index, " is repeated or in no operand");
    shape.push_back(at->second);
  }
  for (auto [index, count] : uses)
    if (count == 1 && !own.contains(index))
      return emitOptionalError(loc, "index ", index, " is in one operand alone: reduce it first");
  results.push_back(RankedTensorType::get(shape, element));
  return success();
}

LogicalResult GroupedContractOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                                  Types &results) {
  auto lhs = tensorType(adaptor.getLhs()), rhs = tensorType(adaptor.getRhs()), groups = tensorType(adaptor.getGroups());
  if (lhs.getElementType() != rhs.getElementType())
    return emitOptionalError(loc, "operands differ in element type: ", lhs, " and ", rhs);
  if (!groups.getElementType().isSignlessInteger(64) && !groups.getElementType().isSignlessInteger(32))
    return emitOptionalError(loc, "groups are counted by i32 or i64, not ", groups);
  ArrayRef<int64_t> result = adaptor.getResultIndices();
  const auto group = static_cast<int64_t>(adaptor.getGroupIndex());
  llvm::SmallDenseMap<int64_t, int64_t> size;
  size[group] = static_cast<int64_t>(adaptor.getGroupCount());
  auto record = [&](ArrayRef<int64_t> indices, RankedTensorType type) {
    llvm::SmallDenseSet<int64_t> own(indices.begin(), indices.end());
    if (static_cast<int64_t>(indices.size()) != type.getRank() || own.size() != indices.size()) return false;
    return llvm::all_of(llvm::zip(indices, type.getShape()), [&](auto dim) {
      return size.try_emplace(std::get<0>(dim), std::get<1>(dim)).first->second == std::get<1>(dim);
    });
  };
  if (!record(adaptor.getLhsIndices(), lhs) || !record(adaptor.getRhsIndices(), rhs) ||
      !record(adaptor.getRowIndices(), groups))
    return emitOptionalError(loc, "indices do not fit ", lhs, ", ", rhs, " and ", groups);
  SmallVector<int64_t> shape;
  for (int64_t index : result) shape.push_back(size.contains(index) ? size[index] : -1);
  if (llvm::is_contained(shape, -1) ||
      llvm::SmallDenseSet<int64_t>(result.begin(), result.end()).size() != result.size())
    return emitOptionalError(loc, "a result index is repeated or in no operand");
  for (auto [index, extent] : size) {
    const bool isRow = llvm::is_contained(adaptor.getRowIndices(), index);
    const bool inLhs = llvm::is_contained(adaptor.getLhsIndices(), index);
    const int uses = inLhs + llvm::is_contained(adaptor.getRhsIndices(), index) + llvm::is_contained(result, index);
    if (uses != (index == group ? 1 : 2) || (index == group && inLhs) || (isRow && !inLhs))
      return emitOptionalError(loc, "index ", index,
                               " stands in the wrong tensors: the group in rhs or the result, rows in ",
                               "lhs and one more, all others in two");
  }
  results.push_back(RankedTensorType::get(shape, lhs.getElementType()));
  return success();
}

LogicalResult ConvOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto x = first(tensorType(adaptor.getX()), adaptor.getChannelsLast());
  auto w = first(tensorType(adaptor.getW()), adaptor.getWeightChannelsLast());
  if (x.getRank() < 3 || w.getRank() != x.getRank() ||
      x.getDimSize(1) != w.getDimSize(1) * static_cast<int64_t>(adaptor.getGroups()) ||
      w.getDimSize(0) % static_cast<int64_t>(adaptor.getGroups()) != 0)
    return emitOptionalError(loc, "weight ", w, " does not fit input ", x, " with ", adaptor.getGroups(), " groups");
  return slide(loc, adaptor, x, w.getShape().drop_front(2), w.getDimSize(0), results);
}

LogicalResult ConvGradInputOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                                Types &results) {
  auto dy = tensorType(adaptor.getDy());
  if (static_cast<int64_t>(adaptor.getInputShape().size()) != dy.getRank() || dy.getRank() < 3)
    return emitOptionalError(loc, "input_shape does not fit ", dy);
  if (failed(checkWindow(loc, adaptor, dy.getRank() - 2))) return failure();
  results.push_back(dy.clone(adaptor.getInputShape()));
  return success();
}

LogicalResult ConvGradWeightOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                                 Types &results) {
  auto dy = tensorType(adaptor.getDy());
  if (static_cast<int64_t>(adaptor.getWeightShape().size()) != dy.getRank() || dy.getRank() < 3)
    return emitOptionalError(loc, "weight_shape does not fit ", dy);
  if (failed(checkWindow(loc, adaptor, dy.getRank() - 2))) return failure();
  results.push_back(dy.clone(adaptor.getWeightShape()));
  return success();
}

template <typename Adaptor> static LogicalResult checkAttention(std::optional<Location> loc, Adaptor adaptor) {
  auto query = tensorType(adaptor.getQuery()), key = tensorType(adaptor.getKey()),
       value = tensorType(adaptor.getValue());
  const int64_t rank = query.getRank();
  auto fits = [&] {
    if (rank < 4 || key.getRank() != rank || value.getRank() != rank) return false;
    auto q = query.getShape(), k = key.getShape(), v = value.getShape();
    auto batch = q.drop_back(3);
    return batch == k.drop_back(3) && batch == v.drop_back(3) &&
           k.take_back(3).drop_back() == v.take_back(3).drop_back() && q[rank - 2] % k[rank - 2] == 0 &&
           q.back() == k.back() && query.getElementType() == key.getElementType() &&
           key.getElementType() == value.getElementType();
  };
  if (!fits())
    return emitOptionalError(loc, "wants [batch, positions, heads, features] that fit, got ", query, ", ", key, " and ",
                             value);
  const int64_t queries = query.getDimSize(rank - 3), keys = key.getDimSize(rank - 3);
  const runtime::AttentionBand band{adaptor.getLeftBound(), adaptor.getRightBound()};
  if (!band.fits(queries, keys))
    return emitOptionalError(loc,
                             "its bounds do not fit: left_bound is at least 1, less than the queries, which are no "
                             "more than the keys; right_bound is at least 0, less than the keys");
  if (auto cap = adaptor.getSoftCap(); cap && !(cap->convertToDouble() > 0))
    return emitOptionalError(loc, "its soft cap is no positive number");
  if (!adaptor.getBias()) return success();
  auto bias = tensorType(adaptor.getBias());
  if (rank != 4 || bias.getRank() != 4 || bias.getDimSize(2) != queries || bias.getDimSize(3) != keys ||
      (bias.getDimSize(0) != 1 && bias.getDimSize(0) != query.getDimSize(0)) ||
      (bias.getDimSize(1) != 1 && bias.getDimSize(1) != query.getDimSize(2)))
    return emitOptionalError(loc, "its bias ", bias, " does not fit the scores");
  return success();
}
LogicalResult ScaledAttentionOp::inferReturnTypes(MLIRContext *context, std::optional<Location> loc, Adaptor adaptor,
                                                  Types &results) {
  if (failed(checkAttention(loc, adaptor))) return failure();
  auto query = tensorType(adaptor.getQuery());
  SmallVector<int64_t> out(query.getShape()), stats(query.getShape().drop_back());
  out.back() = tensorType(adaptor.getValue()).getShape().back();
  std::swap(stats.back(), stats[stats.size() - 2]);
  results.push_back(query.clone(out));
  results.push_back(RankedTensorType::get(stats, Float32Type::get(context)));
  return success();
}
LogicalResult ScaledAttentionGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                                      Types &results) {
  if (failed(checkAttention(loc, adaptor))) return failure();
  for (Value operand : {adaptor.getQuery(), adaptor.getKey(), adaptor.getValue()}) results.push_back(operand.getType());
  return success();
}

LogicalResult MaxPoolOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor, Types &results) {
  auto x = first(tensorType(adaptor.getX()), adaptor.getChannelsLast());
  if (x.getRank() < 3) return emitOptionalError(loc, "wants N, C and spatial dimensions, got ", x);
  return slide(loc, adaptor, x, adaptor.getKernel(), x.getDimSize(1), results);
}

LogicalResult AveragePoolOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                              Types &results) {
  auto x = first(tensorType(adaptor.getX()), adaptor.getChannelsLast());
  if (x.getRank() < 3) return emitOptionalError(loc, "wants N, C and spatial dimensions, got ", x);
  return slide(loc, adaptor, x, adaptor.getKernel(), x.getDimSize(1), results);
}

LogicalResult MaxPoolGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                              Types &results) {
  results.push_back(adaptor.getX().getType());
  return success();
}

LogicalResult AveragePoolGradOp::inferReturnTypes(MLIRContext *, std::optional<Location> loc, Adaptor adaptor,
                                                  Types &results) {
  results.push_back(tensorType(adaptor.getDy()).clone(adaptor.getInputShape()));
  return success();
}

} // namespace cleave::onnx
