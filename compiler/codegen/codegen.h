// Code generation: the local training functions become the plan that the runtime executes.
//
//   local functions    -> commands, kernels, offsets      the passes of Passes.td
//   everything         -> plan::Plan (plan.proto)         emit
#pragma once
#include "mlir/IR/BuiltinOps.h"
#include "plan/plan.pb.h"
#include "runtime/base/sharding/mesh.h"

namespace cleave::codegen {

// Bytes a device holds. They add up to the arena.
struct MemoryReport {
  int64_t parameters = 0;  // weights, running statistics, constants
  int64_t gradients = 0;   // accumulators, and gradients alive at the peak
  int64_t optimizer = 0;   // optimizer state
  int64_t activations = 0; // results of the forward pass alive at the peak
  int64_t workspace = 0;   // everything else in the scratch part of the arena
  int64_t host = 0;        // beside the arena: in the host's memory
  int64_t total() const { return parameters + gradients + optimizer + activations + workspace; }
};

struct CodegenOptions {
  std::string gpu = {};             // "sm_90": the devices are GPUs of this compute capability; empty: CPUs
  bool emulate = false;             // of GPU kernels, also a form that this machine's CPU runs (docs/internals/gpu.md)
  bool offloadsState = false;       // optimizer state lies in the host's memory
  bool offloadsActivations = false; // and what is kept for the backward pass
  bool foldEpilogues = true;        // on GPUs: products end with bias, activation and bias gradients (FoldEpilogues)
  bool tf32 = false;                // products of fp32 round their operands to TF32, on GPUs
  bool deterministic = false;       // every run gives the same bits, in calls of a GPU's libraries too
  std::string cpu = "native";       // whose instructions kernels may use (resolveTarget)
  int64_t threads = 0;              // a device; 0: decided when the plan runs
  MemoryReport *memory = nullptr;   // filled when given
};

// Before the passes: loads the dialects, and notes the mesh and what is offloaded on the module.
void prepare(mlir::ModuleOp module, const dist::Mesh &mesh, const CodegenOptions &options);

// After them: mesh, parameters, programs, kernels. The caller adds training, reports and sources. Errors are emitted as
// diagnostics.
mlir::FailureOr<plan::Plan> emit(mlir::ModuleOp module, const dist::Mesh &mesh, const CodegenOptions &options);

} // namespace cleave::codegen
