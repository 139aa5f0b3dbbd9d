// Writes the training step as a graph of core operators (runtime/plan/graph.proto) for the reference executor: the same
// step, unpartitioned and uncompiled, that `cleave verify` compares with.
//
//   plan::Graph graph;
//   if (failed(exportReference(module, graph))) ...      // after the training phase, before partitioning
//
// Attributes keep their names: integers, booleans and unit attributes become `ints`, F64 `floats`; a constant's value
// becomes `tensor` (little-endian row-major bytes; a splat is one element). Result types say the rest. Works between
// the phase's passes too: a result that is the gradient of a parameter is the output "gradient/NAME".
#pragma once
#include "graph.pb.h"
#include "mlir/IR/BuiltinOps.h"

namespace cleave::training {
mlir::LogicalResult exportReference(mlir::ModuleOp module, plan::Graph &graph);

// A block of core ops as the one function `name`: its arguments that are tensors are the inputs, what its terminator
// gives are the outputs. `indexShift`: a discardable attribute that is exported as `scalar`.
mlir::LogicalResult exportBlock(mlir::Block &block, llvm::StringRef name, llvm::StringRef indexShift,
                                plan::Graph &graph);
} // namespace cleave::training
