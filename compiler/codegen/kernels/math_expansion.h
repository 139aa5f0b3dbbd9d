// Replaces transcendental functions on f32, and on 16-bit floats by way of f32, by polynomials that vectorise, without
// calls and tables. Errors measured against the true value over the whole range, in units of the last place: exp 1.5,
// log 1.5, log1p 3, erf 7, tanh 6 (test/unit/kernels/math_test.cpp checks them). Infinities and NaN behave as in libm;
// results below the smallest normal number may be flushed to 0.
//
// f64 functions, sin, cos and general powers are left for libm.
#pragma once
#include "mlir/IR/Operation.h"

namespace cleave::codegen {

// Expands every math op below `root` that has an expansion. `fuses`: with a math.fma where one is multiplied and added.
void expandMath(mlir::Operation *root, bool fuses = false);

} // namespace cleave::codegen
