#include "compiler/normalize/along_axis.h"

using namespace mlir;
namespace cleave::normalize {

static std::optional<AlongAxis> ofConstant(DenseElementsAttr attribute) {
  runtime::HostTensor tensor = toHostTensor(attribute);
  std::vector<int64_t> values = tensor.integers(), strides = runtime::rowMajorStrides(tensor.shape);
  if (values.empty()) return std::nullopt;
  for (int64_t d = -1; d < int64_t(tensor.shape.size()); ++d) {
    int64_t stride = d < 0 ? 1 : strides[d], size = d < 0 ? 1 : tensor.shape[d];
    if (d >= 0 && size == 1) continue;
    AlongAxis result{d, Dims(size)};
    for (int64_t i = 0; i < size; ++i) result.values[i] = values[i * stride];
    bool fits = true;
    for (size_t i = 0; fits && i < values.size(); ++i) fits = values[i] == result.values[int64_t(i) / stride % size];
    if (fits) return result;
  }
  return std::nullopt;
}

std::optional<AlongAxis> alongAxis(Value value) {
  if (DenseElementsAttr attribute = constantOf(value)) {
    if (attribute.isSplat()) return AlongAxis{-1, {int64_t(*splatOf(value))}};
    return ofConstant(attribute);
  }
  if (auto iota = value.getDefiningOp<onnx::IotaOp>(); iota && shapeOf(value)[iota.getDim()] <= demandFoldLimit)
    return AlongAxis{int64_t(iota.getDim()), countUp(shapeOf(value)[iota.getDim()])};
  if (auto broadcast = value.getDefiningOp<onnx::BroadcastOp>()) {
    auto inner = alongAxis(broadcast.getX());
    if (inner && inner->dim >= 0) inner->dim = broadcast.getDims()[inner->dim];
    return inner;
  }
  if (auto cast = value.getDefiningOp<onnx::CastOp>())
    return isFloatTensor(cast.getX()) ? std::nullopt : alongAxis(cast.getX());
  if (auto transpose = value.getDefiningOp<onnx::TransposeOp>()) {
    auto inner = alongAxis(transpose.getX());
    if (inner && inner->dim >= 0)
      inner->dim = llvm::find(transpose.getPerm(), inner->dim) - transpose.getPerm().begin();
    return inner;
  }
  if (auto reshape = value.getDefiningOp<onnx::ReshapeOp>()) {
    auto inner = alongAxis(reshape.getX());
    if (!inner || inner->dim < 0) return inner;
    // The dimension survives if the elements before it and its size are the same.
    int64_t before = 1, seen = 1;
    for (int64_t d = 0; d < inner->dim; ++d) before *= shapeOf(reshape.getX())[d];
    for (auto [d, size] : llvm::enumerate(reshape.getShape())) {
      if (seen == before && size == int64_t(inner->values.size())) return AlongAxis{int64_t(d), inner->values};
      seen *= size;
    }
  }
  return std::nullopt;
}

Value component(CoreBuilder &b, Value indices, int64_t index) {
  int64_t last = rankOf(indices) - 1;
  ArrayRef<int64_t> outer = shapeOf(indices).drop_back();
  if (auto concat = indices.getDefiningOp<onnx::ConcatOp>(); concat && int64_t(concat.getAxis()) == last) {
    int64_t start = 0;
    for (Value part : concat.getXs()) {
      int64_t size = shapeOf(part)[last];
      if (index < start + size) return b.reshape(b.slice(part, last, index - start, 1), outer);
      start += size;
    }
  }
  return b.reshape(b.slice(indices, last, index, 1), outer);
}

} // namespace cleave::normalize
