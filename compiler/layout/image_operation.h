// How operations treat tensors whose channels may be last.
//
//   Conv, pools, Relu, Pad, all_reduce    carry the order: all their tensors have the same one
//   ReduceSum, Broadcast, Iota            take either order: their attributes name dimensions, and say which
//   Reshape, Gather, a function's return  know channels first only
#pragma once
#include "dialects/onnx/kinds.h"

namespace cleave::layout {

using onnx::bytesOf;

bool isConvolution(mlir::Operation *op); // Conv, ConvGradInput, ConvGradWeight
bool isPool(mlir::Operation *op);

// All tensors of three and more dimensions have one order, but for a convolution's weight.
bool carriesOrder(mlir::Operation *op);
// The operands of an operation that carries the order, which have it.
llvm::SmallVector<mlir::OpOperand *> orderedOperands(mlir::Operation *op);
// Its results that have it.
llvm::SmallVector<mlir::Value> orderedResults(mlir::Operation *op);

// Takes its first operand in either order: a reduction.
bool reads(mlir::Operation *op);
// Gives its result in either order: a Broadcast, an Iota, a constant of one value.
bool makes(mlir::Operation *op);

// The weight that a convolution reads; null for others, and for a gradient of the weight.
mlir::OpOperand *weightOperand(mlir::Operation *op);

inline mlir::RankedTensorType tensorOf(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}

} // namespace cleave::layout
