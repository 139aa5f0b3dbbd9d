// What an op is, for every phase: each question has its one answer here, from the op's facets.
//
//               isView  isAlias  isMovement  isPointwise  isGenerator
//   Reshape       x        x         x
//   Transpose     x                  x
//   Concat                           x
//   Relu                                          x
//   Iota                                                       x
#pragma once
#include "dialects/onnx/Onnx.h"

namespace cleave::onnx {

bool is(mlir::Operation *op, LoweringKind kind);
// Bound by arithmetic: a product, a convolution, an attention in one.
bool isHeavy(mlir::Operation *op);
// Its elements are those of its one operand at other indices, so that a kernel reads them there: Reshape, Transpose,
// Broadcast, Slice, StopGradient.
bool isView(mlir::Operation *op);
// The operand's own bytes under another shape: Reshape.
bool isAlias(mlir::Operation *op);
// Gives elements of its operands, and zeros: what is done to each element may be done before it. Pad if its value is 0.
bool isMovement(mlir::Operation *op);
// Each element of its operand once, under another shape or in another order: Reshape, Transpose.
bool isRearrangement(mlir::Operation *op);
// Each result element from the same element of every operand, of which there is one at least; no draw.
bool isPointwise(mlir::Operation *op);
// The sum of its operands: Add, Sum.
bool isSum(mlir::Operation *op);
// ReduceSum, ReduceMax, ReduceMin.
bool isReduction(mlir::Operation *op);
bool isConstant(mlir::Operation *op);
// A Constant of one number everywhere.
bool isSplat(mlir::Value value);
// The number that a value has everywhere: views of a splat, cast ones too if the rounding does not matter.
std::optional<double> repeatedNumber(mlir::Value value, bool throughCasts = false);
// Made from indices alone, where it is read: Constant, Iota, RandomUniform.
bool isGenerator(mlir::Operation *op);
// In memory for the whole function: what onnx.read gives, and a Constant.
bool isResident(mlir::Operation *op);
// A Cast to an element of more bytes.
bool isWideningCast(mlir::Operation *op);

// Transposing a tensor of this shape leaves its elements where they are: only dimensions of one element change places.
bool keepsOrder(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> perm);

// Of an element, and of a static ranked tensor. A boolean, and what is narrower than a byte, has one.
int64_t elementBytes(mlir::Type element);
int64_t bytesOf(mlir::Type tensor);
inline int64_t bytesOf(mlir::Value value) { return bytesOf(value.getType()); }

} // namespace cleave::onnx
