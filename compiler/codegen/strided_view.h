// A tensor seen through the movement ops that made it: which elements of which other tensor it is, by strides.
//
//   %t = onnx.Transpose %x {perm = [1, 0]}        %x : 4x6
//   %s = onnx.Slice %t {starts = [2, 0], ...}     view of %s: base %x, offset 2, strides [1, 6]
//
// A command that takes strides (plan.contract, plan.copy) reads the base; the movement ops then cost nothing.
#pragma once
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"

namespace cleave::codegen {

struct StridedView {
  mlir::Value base;
  int64_t offset = 0;                    // elements
  llvm::SmallVector<int64_t, 6> sizes;   // of the viewed tensor
  llvm::SmallVector<int64_t, 6> strides; // elements; 0 along repeated dimensions

  // The elements are adjacent and in row-major order.
  bool isDense() const;
};

// Through Transpose, Slice, Broadcast, and Reshape where strides can express it.
StridedView viewOf(mlir::Value value);

// Row-major strides of a dense tensor.
llvm::SmallVector<int64_t, 6> rowMajorStrides(llvm::ArrayRef<int64_t> sizes);

// Strides of the same elements under another shape; false if no strides express it.
bool reshapeStrides(llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> strides, llvm::ArrayRef<int64_t> newSizes,
                    llvm::SmallVectorImpl<int64_t> &newStrides);

} // namespace cleave::codegen
