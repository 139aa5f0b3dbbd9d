// Which dimension of a function's argument counts samples.
//
//   func.func @model(%x: tensor<6x8x5xf32> {cleave.sample_dim = 1}, %table: tensor<1x6xi64> {cleave.sample_dim = -1})
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cleave::onnx {

inline constexpr llvm::StringLiteral sampleDimName = "cleave.sample_dim";

// -1: none, all samples read the same. An argument that says nothing has them along dimension 0.
inline int64_t sampleDim(mlir::func::FuncOp function, unsigned argument) {
  auto type = mlir::dyn_cast<mlir::RankedTensorType>(function.getArgument(argument).getType());
  if (!type || type.getRank() == 0) return -1;
  auto dim = function.getArgAttrOfType<mlir::IntegerAttr>(argument, sampleDimName);
  return dim ? dim.getInt() : 0;
}

inline void setSampleDim(mlir::func::FuncOp function, unsigned argument, int64_t dim) {
  mlir::Builder builder(function.getContext());
  if (dim == 0)
    function.removeArgAttr(argument, sampleDimName);
  else
    function.setArgAttr(argument, sampleDimName, builder.getI64IntegerAttr(dim));
}

} // namespace cleave::onnx
