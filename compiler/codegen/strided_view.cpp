#include "compiler/codegen/strided_view.h"
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
  if (auto transpose = dyn_cast_or_null<onnx::TransposeOp>(op)) {
    StridedView source = viewOf(transpose.getX());
    view.base = source.base, view.offset = source.offset;
    for (int64_t dim : transpose.getPerm()) view.strides.push_back(source.strides[dim]);
    return view;
  }
  if (auto broadcast = dyn_cast_or_null<onnx::BroadcastOp>(op)) {
    StridedView source = viewOf(broadcast.getX());
    view.base = source.base, view.offset = source.offset;
    view.strides.assign(view.sizes.size(), 0);
    for (auto [i, dim] : llvm::enumerate(broadcast.getDims())) view.strides[dim] = source.strides[i];
    return view;
  }
  if (auto slice = dyn_cast_or_null<onnx::SliceOp>(op)) {
    StridedView source = viewOf(slice.getX());
    view.base = source.base, view.offset = source.offset;
    for (auto [stride, start, step] : llvm::zip(source.strides, slice.getStarts(), slice.getSteps())) {
      view.offset += start * stride;
      view.strides.push_back(stride * step);
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

} // namespace cleave::codegen
