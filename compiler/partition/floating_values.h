// Values that belong to no pipeline stage: whoever needs one computes it, which costs less than sending it.
//
//   %i = onnx.Iota, %m = onnx.Less(%i, %position)       from constants and inputs: masks, position numbers
//   %w = onnx.read @w, %t = onnx.Transpose %w           a parameter as it lies or is laid out otherwise
//   dist.all_gather %w over dp                          every device of the stage takes part
//
// An operation that computes with a parameter has a stage, and so has all heavy work; a tensor that the function itself
// writes is read where it is written.
#pragma once
#include "dialects/dist/Dist.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/DenseMap.h"

namespace cleave::partition {

class FloatingValues {
public:
  explicit FloatingValues(mlir::func::FuncOp function);
  bool contains(mlir::Operation *op) const { return kinds.contains(op); }
  bool contains(mlir::Value value) const { return !value.getDefiningOp() || kinds.contains(value.getDefiningOp()); }
  // Heavy operations are a library's by their kind (products, convolutions, pooling) or have a body (attention): never
  // repeated.
  static bool isAnchored(mlir::Operation *op);

private:
  enum class Kind { FromInputs, FromParameter };
  std::optional<Kind> kindOf(mlir::Operation *op) const;
  llvm::DenseSet<mlir::Attribute> written; // persistent tensors
  llvm::DenseMap<mlir::Operation *, Kind> kinds;
};

} // namespace cleave::partition
