// The memory that the update of a parameter needs at once for its own values, beside parameters, gradients and states:
// a product's operands and result, and the values that a kernel waits for from a reduction or a product. Updates run
// one after the other (ScheduleCommands).
//
//   LAMB: u = m / (sqrt v + eps) + decay w;  r = |w| / |u|;  w = w - lr r u        u: as many bytes as w in fp32
//   in fp16    m and v, too: the old ones stay where gradients overflowed             m lies where the gradient was
//   Adam: one kernel from the gradient to the new states and parameter             none
#pragma once
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

namespace cleave::partition {

// Bytes by parameter, unsplit, of a step's function.
llvm::StringMap<double> updateMemory(mlir::func::FuncOp step, const mlir::SymbolTable &symbols);

} // namespace cleave::partition
