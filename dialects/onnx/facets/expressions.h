// What OnnxCoreOps.td writes the facets of an op with, where they are one expression.
//
//   def NegOp : Core_Unary<"Neg", "-x"> { let rule = "rules::perElementLinear(*this)"; }
#pragma once
#include "dialects/onnx/facets/rule_building.h"

namespace cleave::onnx {

// How many elements a tensor has.
double elementsOf(mlir::Value tensor);

// All operands must have the same type; the result has it too, or as a predicate i1 elements.
llvm::LogicalResult sameType(std::optional<mlir::Location> loc, mlir::ValueRange operands,
                             llvm::SmallVectorImpl<mlir::Type> &results);
llvm::LogicalResult predicate(std::optional<mlir::Location> loc, mlir::ValueRange operands,
                              llvm::SmallVectorImpl<mlir::Type> &results);

namespace rules {
// Every dimension of the result is a parallel factor, and so are those of the operands. Partial sums of all operands
// pass through what is linear.
FactorRule perElement(mlir::Operation *op);
FactorRule perElementLinear(mlir::Operation *op);
// Dimensions of x and y that have one size are the same; others stay whole.
FactorRule sizeBySize(mlir::Value x, mlir::Value y, bool isLinear = true);
// The same of dimensions of y and those of x that they read; along the others y repeats x.
FactorRule stridedView(mlir::Value x, mlir::Value y, const StridedMap &map);
} // namespace rules
} // namespace cleave::onnx
