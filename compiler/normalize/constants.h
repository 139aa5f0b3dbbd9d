// Constants of the IR as host tensors, and the evaluation of core ops on them by the reference evaluator.
//
//   %c = onnx.Constant dense<[2, 3]> : tensor<2xi64>
//   constantTensor(%c)                 -> HostTensor {I64, [2], 2 3}
//   foldOp(%y = onnx.Add %c, %c, 4096) -> dense<[4, 6]>
//
// Splats stay splats: an elementwise op of splats is evaluated on one element, whatever the shape.
#pragma once
#include "compiler/elements/element_data.h"
#include "dialects/onnx/kinds.h"
#include "runtime/check/reference/evaluator.h"

namespace cleave::normalize {

// Largest tensor (in elements) that folding leaves behind as a constant that is not a splat.
inline constexpr int64_t defaultFoldLimit = 65536;
// Largest tensor that is evaluated because an operator must know it (indices, shapes), not to be kept.
inline constexpr int64_t demandFoldLimit = 1 << 24;

runtime::TensorType tensorTypeOf(mlir::Type type); // of a static ranked tensor

runtime::HostTensor toHostTensor(mlir::ElementsAttr attribute);
mlir::DenseElementsAttr toAttribute(const runtime::HostTensor &tensor, mlir::RankedTensorType type);

// The constant's attribute; null when `value` is no onnx.Constant.
mlir::DenseElementsAttr constantOf(mlir::Value value);
// The one value of a splat constant (floats and integers); none for other values.
std::optional<double> splatOf(mlir::Value value);

// A core op of one result on these operands, as typed.
Result<runtime::HostTensor> evaluateOp(mlir::Operation *op, llvm::ArrayRef<runtime::HostTensor> operands);

// The constant, or the constant that `value` repeats along further dimensions (an onnx.Broadcast of one), if it has at
// most `limit` elements.
std::optional<runtime::HostTensor> repeatedConstant(mlir::Value value, int64_t limit);

// The dimensions along which a constant differs; the others only repeat it.
llvm::SmallVector<int64_t> varyingDims(mlir::DenseElementsAttr value);

// The attributes of a core op as the evaluator wants them.
runtime::Attributes evaluatorAttributes(mlir::Operation *op);

// The result of a core op whose operands are all constants; null when they are not, when the result would have more
// than `limit` elements (a splat may), or when the evaluator refuses.
mlir::DenseElementsAttr foldOp(mlir::Operation *op, int64_t limit = defaultFoldLimit);

// The value, if it depends on constants alone: what foldOp left (because it is large) is evaluated here.
std::optional<runtime::HostTensor> evaluateOnDemand(mlir::Value value, int64_t limit = demandFoldLimit);

} // namespace cleave::normalize
