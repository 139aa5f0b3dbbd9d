// Floats of 16 bits are computed in f32, and converted by code of our own: compilers call functions for it where the
// CPU has no instruction, and older systems lack those functions.
//
//   %y = fadd bfloat %a, %b    ->    %y = narrow(fadd float widen(%a), widen(%b))
//
// Narrowing rounds to the nearest, ties to even; a NaN stays one, subnormal numbers stay exact. The numbers are the
// same on every CPU. f64 is narrowed by way of f32, as PyTorch does.
#pragma once
#include "llvm/IR/Module.h"

namespace cleave::codegen {

// Rewrites all functions of a module that no pass has vectorised yet. `converts`: the CPU has instructions that
// convert fp16 (F16C), which are used then.
void computeNarrowFloatsInSingle(llvm::Module &module, bool converts);

} // namespace cleave::codegen
