// A plan for steps of several shapes, by the length of samples or by a ramp of the batch: the step of each is built and
// split by itself, by the decision that was made for the last, and all become routines of one plan, which share
// parameters, state and scratch memory.
//
//   lengths [128, 512]      step        accumulate m0, final m1                  evaluate        evaluate m0
//                           step@128    accumulate@128 m0, final@128 m1          evaluate@128    evaluate@128 m0
#pragma once
#include "mlir/IR/BuiltinOps.h"

namespace cleave {

// Moves the functions and routines of `other` into `whole`, both after the partition phase and of one context; their
// names end with `suffix`. Error, as a diagnostic: a persistent tensor that is not the same in both.
mlir::LogicalResult joinRoutines(mlir::ModuleOp whole, mlir::ModuleOp other, llvm::StringRef suffix);

} // namespace cleave
