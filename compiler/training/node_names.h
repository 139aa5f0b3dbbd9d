// The names by which a decision knows the forward operations.
//
//   %y = onnx.Contract %x, %w {place.node = "/up/MatMul"} loc("/up/MatMul")
//   %z = onnx.Transpose %y {place.node = "/up/MatMul:Transpose"} loc("/up/MatMul")
//   %c = onnx.Cast %z loc("/up/MatMul")                                                "/up/MatMul:+Cast"
//
// NameOperations gives them to all of @model, from which the other functions are made. What later passes add to a node
// is counted where it is asked for.
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <string>
#include <vector>

namespace cleave::training {

// The node of a microbatch's loss that is scaled to its part of the batch.
inline constexpr llvm::StringLiteral partOfBatch = "loss.part";
// Whether AttachLoss made the operation: the loss of a microbatch has another form than that of the batch, for which
// decisions are made.
bool isOfLoss(llvm::StringRef name);

struct NamedOperation {
  mlir::Operation *op;
  std::string name; // each of the function's has another one
};
// That of the exported node for the operation that does most of its arithmetic, "node:Op" or "node:Op.2" for the
// others, "node:+Op" for those that were added after NameOperations.
std::vector<NamedOperation> forwardOperations(mlir::func::FuncOp function);

} // namespace cleave::training
