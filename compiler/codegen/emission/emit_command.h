// One plan op as commands of plan.proto. Offsets, streams and events are read from the op's attributes.
//
//   %y = plan.copy %x {fill = 0.0, ...}   -> Fill, then Copy
//   %y = plan.concat %a, %b               -> a Copy for each part that is not already in place
//   plan.store %v, @w {in_place}          -> nothing
#pragma once
#include "dialects/plan/Plan.h"
#include "plan/plan.pb.h"
#include "llvm/ADT/DenseMap.h"

namespace cleave::codegen {

// The facts of the module that the translation needs.
struct EmissionContext {
  llvm::DenseMap<mlir::Attribute, int32_t> kernels;      // FlatSymbolRefAttr of a plan.kernel -> index
  llvm::DenseMap<mlir::Attribute, int64_t> paramOffsets; // FlatSymbolRefAttr of an onnx.param -> bytes
};

// Appends the op's commands to the fragment. Ops without code (views, constants, reads) append nothing.
mlir::LogicalResult emitCommand(mlir::Operation &op, const EmissionContext &context, plan::Fragment &fragment);

// The place (runtime/plan/routine.h) at which a value begins, in a slot that of its first copy.
int64_t addressOf(mlir::Value value);

// A value's buffer: its offset from PlanMemory, element type and shape. In a slot (plan.slot_region of the function:
// offset and bytes of its first copy, copies): the offset from the slot's start.
plan::Buffer bufferOf(mlir::Value value);

// The node that a location names: "h.0.attn.MatMul"; for a fused one up to three names, joined by "+".
std::string nodeName(mlir::Location location);

} // namespace cleave::codegen
