// Is an onnx.node what ONNX says such a node may be? One answer for all operators, before any rule reads it.
//
//   faultOf(%y = onnx.node "LRN"(%x) {size = -1})   ->   "its attribute 'size' is -1, which is not from 1 to 65536"
//
// From ONNX's schema of the operator and opset: which attributes there are, their types, which must be given; how many
// inputs and outputs, which may be absent; element types and which of them must be the same. From operator_demands.h
// what a schema cannot say: ranges, words, lengths of lists, ranks and dimensions that must agree.
//
// Types that are not known yet are not looked at: CheckNodes asks before dimensions are bound, so that it reports every
// fault that does not depend on sizes; NormalizeNodes asks again when the operands are tensors of static shape.
#pragma once
#include "dialects/onnx/Onnx.h"
#include <optional>
#include <string>

namespace cleave::normalize {

// Facts of an operand that its type does not tell while nodes are rewritten: whether one that looks absent (onnx.none)
// stands for a sequence of tensors, and which narrow element type it has (narrow_types.h; null: its own).
struct OperandKinds {
  llvm::function_ref<bool(mlir::Value)> isSequence;
  llvm::function_ref<mlir::Type(mlir::Value)> narrow;
};

// The fault of the node, as the rest of a sentence; none: nothing is.
std::optional<std::string> faultOf(onnx::NodeOp node, const OperandKinds &kinds);

// The operand whose element type a result has, by the schema; none: no operand decides it.
std::optional<size_t> operandOfResult(onnx::NodeOp node, size_t result);

} // namespace cleave::normalize
