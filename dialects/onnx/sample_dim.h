// Which dimension of a function's argument counts samples.
//
//   func.func @model(%x: tensor<6x8x5xf32> {onnx.sample_dim = 1}, %table: tensor<1x6xi64> {onnx.sample_dim = -1})
#pragma once
#include "dialects/onnx/attributes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::onnx {

// -1: none, all samples read the same. An argument that says nothing has them along dimension 0.
inline int64_t sampleDim(mlir::func::FuncOp function, unsigned argument) {
  auto type = mlir::dyn_cast<mlir::RankedTensorType>(function.getArgument(argument).getType());
  return !type || type.getRank() == 0 ? -1 : sampleDimAttr.of(function, argument).value_or(0);
}

inline void setSampleDim(mlir::func::FuncOp function, unsigned argument, int64_t dim) {
  if (dim == 0)
    sampleDimAttr.removeArg(function, argument);
  else
    sampleDimAttr.setArg(function, argument, dim);
}

} // namespace cleave::onnx
