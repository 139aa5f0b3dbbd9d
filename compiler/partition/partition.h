// Splitting a training step over a mesh: from a decision to a module whose tensors are those of one device.
//
//   planner::Problem problem = extractProblem(module, {.batch = 32, .samples = 8, .precision = "fp32"});
//   planner::Decision decision = ... planner::solve(problem, ...);
//   addPartitionPasses(passes, {decision});   passes.run(module)      (compiler/driver/pass_list.h)
//
// Before (dp=2, tp=2):  %y = onnx.Contract %x, %w : (tensor<8x64xf32>, tensor<64x256xf32>) -> tensor<8x256xf32>
// After:                %p = onnx.Contract %x, %w : (tensor<4x32xf32>, tensor<32x256xf32>) -> tensor<4x256xf32>
//                       %y = dist.all_reduce %p {axes = ["tp"], reduce = #dist.reduction<sum>, why = "..."}
#pragma once
#include "compiler/planner/problem/problem.h"
#include "mlir/IR/BuiltinOps.h"

namespace cleave::partition {

struct ProblemOptions {
  std::string name;
  int64_t batch = 1;   // samples a step
  int64_t samples = 1; // samples the module is built with
  std::string precision = "fp32";
  bool meetsAtUpdate = false, writesAttention = false; // planner::Problem
  std::string function = "final"; // `cleave inspect` asks for "model", which has no backward pass yet
};

// The planner's view of the forward part of a function. Fails (with an error at the op) when an op has no factor rule.
llvm::FailureOr<planner::Problem> extractProblem(mlir::ModuleOp module, const ProblemOptions &options);

} // namespace cleave::partition
