// A tensor seen through the movement ops that made it: which elements of which other tensor it is, by strides.
//
//   %t = onnx.Transpose %x {perm = [1, 0]}        %x : 4x6
//   %s = onnx.Slice %t {starts = [2, 0], ...}     view of %s: base %x, offset 2, strides [1, 6]
//
// A command that takes strides (plan.contract, plan.copy) reads the base; the movement ops then cost nothing.
#pragma once
#include "dialects/plan/Plan.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Value.h"
#include <optional>

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

// Batch, rows and columns of a product.
llvm::SmallVector<int64_t> sizesOf(plan::ContractCommandOp product);

// How a part of a concatenation lies in it: rows of `row` adjacent elements, each `pitch` elements after the one
// before.
//
//   %j = plan.concat %q, %k {axis = 1}     of 4x2 and 4x6: %q is in rows of 2, %k in rows of 6, of pitch 8
struct PitchedRows {
  int64_t row = 0, pitch = 0;

  // Elements from the first to the last of so many.
  int64_t span(int64_t elements) const { return (elements / row - 1) * pitch + row; }
  // The strides that these of a dense tensor become; none where a dimension goes on from one row to the next.
  std::optional<llvm::SmallVector<int64_t>> strides(llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> dense) const;
};

// The gradient that is this result of an attention's backward pass: sizes and strides of batch, heads, positions and
// features, as if it were dense in its buffer.
struct AttentionGradient {
  llvm::SmallVector<int64_t, 4> sizes, strides;
};
AttentionGradient gradientOf(plan::AttentionCommandOp attention, size_t result);

// Can the command that makes the value write it straight into its place in a concatenation? Products, gradients of
// attention and copies can, if their strides express the pitch.
bool canWritePitched(mlir::Value value, PitchedRows rows);

// The choice of PlanMemory: `plan.rows` of the command, two numbers a result, zeros where one is dense.
std::optional<PitchedRows> pitchedRowsOf(mlir::Value value);

} // namespace cleave::codegen
