// A planned module as plan.proto: mesh, persistent tensors, kernels and the program with its fragments.
//
//   onnx.param @w : tensor<64x256xf32> "parameter" {path = "m.data", plan.offset = 0}   -> Plan.parameters
//   func.func @final(%x {onnx.name = "x", plan.offset = 4096}, ...)                     -> Fragment "final"
#pragma once
#include "compiler/codegen/codegen.h"

namespace cleave::codegen {

// Everything but the kernels' object code. The module has gone through PlanMemory.
mlir::FailureOr<plan::Plan> emitPlan(mlir::ModuleOp module, const dist::Mesh &mesh);

} // namespace cleave::codegen
