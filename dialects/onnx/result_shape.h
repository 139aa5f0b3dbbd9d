// Attributes by which a core op says its result's shape, for passes that change shapes.
//
//   %y = onnx.Reshape %x {shape = [8, 64]} : tensor<8x4x16xf32>      setResultShape(op, {4, 64})      shape = [4, 64]
#pragma once
#include "mlir/IR/Operation.h"

namespace cleave::onnx {

// `shape`: of the first result. Types stay as they are; an op whose shape follows from its operands is left alone.
void setResultShape(mlir::Operation *op, llvm::ArrayRef<int64_t> shape);

} // namespace cleave::onnx
