#include "compiler/codegen/commands/strided_view.h"
#include "compiler/codegen/commands/command_list.h"
#include "dialects/onnx/Onnx.h"
#include "dialects/plan/Plan.h"

namespace cleave::codegen {
using namespace mlir;

llvm::SmallVector<int64_t, 6> rowMajorStrides(llvm::ArrayRef<int64_t> sizes) {
  llvm::SmallVector<int64_t, 6> strides(sizes.size());
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = stride;
    stride *= sizes[i];
  }
  return strides;
}

bool StridedView::isDense() const {
  int64_t stride = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (sizes[i] != 1 && strides[i] != stride) return false;
    stride *= sizes[i];
  }
  return true;
}

bool reshapeStrides(llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> strides, llvm::ArrayRef<int64_t> newSizes,
                    llvm::SmallVectorImpl<int64_t> &newStrides) {
  newStrides.assign(newSizes.size(), 1);
  llvm::SmallVector<int64_t, 6> oldSizes, oldStrides; // without dimensions of size 1
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    oldSizes.push_back(sizes[i]);
    oldStrides.push_back(strides[i]);
  }
  // Groups of old and new dimensions of equal product; the old ones of a group must collapse to one stride.
  size_t old = 0, fresh = 0;
  while (old < oldSizes.size()) {
    size_t oldEnd = old + 1, freshEnd = fresh;
    int64_t oldProduct = oldSizes[old], freshProduct = 1;
    while (freshEnd < newSizes.size() && freshProduct < oldProduct) freshProduct *= newSizes[freshEnd++];
    while (oldProduct != freshProduct) {
      if (oldProduct < freshProduct) {
        if (oldEnd == oldSizes.size()) return false;
        oldProduct *= oldSizes[oldEnd++];
      } else {
        if (freshEnd == newSizes.size()) return false;
        freshProduct *= newSizes[freshEnd++];
      }
    }
    for (size_t i = old; i + 1 < oldEnd; ++i)
      if (oldStrides[i] != oldSizes[i + 1] * oldStrides[i + 1]) return false;
    int64_t stride = oldStrides[oldEnd - 1];
    for (size_t i = freshEnd; i-- > fresh;) {
      newStrides[i] = stride;
      stride *= newSizes[i];
    }
    old = oldEnd, fresh = freshEnd;
  }
  return true;
}

StridedView viewOf(Value value) {
  StridedView view;
  view.sizes = llvm::SmallVector<int64_t, 6>(cast<RankedTensorType>(value.getType()).getShape());
  Operation *op = value.getDefiningOp();
  auto itself = [&] {
    view.base = value;
    view.offset = 0;
    view.strides = rowMajorStrides(view.sizes);
    return view;
  };
  if (auto strided = dyn_cast_or_null<onnx::StridedViewOpInterface>(op)) {
    const StridedView source = viewOf(op->getOperand(0));
    const onnx::StridedMap map = strided.getStridedMap();
    view.base = source.base, view.offset = source.offset;
    view.strides.assign(view.sizes.size(), 0);
    for (auto [stride, dim, start, step] : llvm::zip_equal(source.strides, map.dims, map.starts, map.steps)) {
      view.offset += start * stride;
      view.strides[dim] = stride * step;
    }
    return view;
  }
  Value source;
  if (auto reshape = dyn_cast_or_null<onnx::ReshapeOp>(op)) source = reshape.getX();
  if (auto look = dyn_cast_or_null<plan::ViewOp>(op); look && look.getOffset() == 0 &&
                                                      cast<RankedTensorType>(look.getX().getType()).getNumElements() ==
                                                          cast<RankedTensorType>(value.getType()).getNumElements())
    source = look.getX();
  if (!source) return itself();
  StridedView under = viewOf(source);
  llvm::SmallVector<int64_t, 6> strides;
  if (!reshapeStrides(under.sizes, under.strides, view.sizes, strides)) return itself();
  view.base = under.base, view.offset = under.offset, view.strides = strides;
  return view;
}

std::optional<llvm::SmallVector<int64_t>> PitchedRows::strides(llvm::ArrayRef<int64_t> sizes,
                                                               llvm::ArrayRef<int64_t> dense) const {
  llvm::SmallVector<int64_t> placed;
  for (auto [size, stride] : llvm::zip_equal(sizes, dense)) {
    const bool isInside = size == 1 || (stride > 0 && row % (stride * size) == 0);
    if (!isInside && stride % row != 0) return std::nullopt;
    placed.push_back(isInside ? stride : stride / row * pitch);
  }
  return placed;
}

llvm::SmallVector<int64_t> sizesOf(plan::ContractCommandOp product) {
  llvm::SmallVector<int64_t> sizes(product.getBatch());
  sizes.append({int64_t(product.getM()), int64_t(product.getN())});
  return sizes;
}

AttentionGradient gradientOf(plan::AttentionCommandOp attention, size_t result) {
  llvm::ArrayRef<int64_t> n = attention.getSizes(); // batch, heads (of queries, keys), queries, keys, features
  return {{n[0], n[result == 0 ? 1 : 2], n[result == 0 ? 3 : 4], n[result == 2 ? 6 : 5]},
          llvm::SmallVector<int64_t, 4>(attention.getGradientStrides().slice(4 * result, 4))};
}

bool canWritePitched(Value value, PitchedRows rows) {
  auto result = dyn_cast<OpResult>(value);
  if (!result || streamOf(result.getOwner()) != 0) return false;
  Operation *op = result.getOwner();
  if (auto product = dyn_cast<plan::ContractCommandOp>(op)) {
    return result.getResultNumber() == 0 && !product.getSum() && !product.getActivation() &&
           rows.strides(sizesOf(product), product.getOutStrides());
  }
  if (auto attention = dyn_cast<plan::AttentionCommandOp>(op)) {
    if (!attention.getOutGradient()) return false;
    const AttentionGradient gradient = gradientOf(attention, result.getResultNumber());
    return bool(rows.strides(gradient.sizes, gradient.strides));
  }
  auto copy = dyn_cast<plan::CopyCommandOp>(op);
  return copy && !copy.getFill() && !isFetch(op) && !isEvict(op) && copy.getTargetOffset() == 0 &&
         rows.strides(copy.getSizes(), copy.getTargetStrides());
}

std::optional<PitchedRows> pitchedRowsOf(Value value) {
  auto result = dyn_cast<OpResult>(value);
  const auto all = result ? plan::rowsAttr.of(result.getOwner()) : std::nullopt;
  if (!all) return std::nullopt;
  const PitchedRows rows{(*all)[2 * result.getResultNumber()], (*all)[2 * result.getResultNumber() + 1]};
  return rows.row > 0 ? std::optional(rows) : std::nullopt;
}

} // namespace cleave::codegen
