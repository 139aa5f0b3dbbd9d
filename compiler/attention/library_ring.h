// A library's attention on the blocks of a ring: every turn is one call or two, whose rows are merged by the logarithms
// of their softmax's denominators (ScaledAttention's stats; Liu et al. 2023, Dao et al. 2022).
//
//   stats = log(exp(stats a) + exp(stats b));   out = out a * exp(stats a - stats) + out b * exp(stats b - stats)
//
// Backward every turn is the gradient of its block with the whole row's out and stats.
#pragma once
#include "mlir/IR/Builders.h"

namespace cleave::attention {

// Replaces a ScaledAttention or its gradient, whose sequence divides into twice as many parts as `blocks` if it is
// causal. `headTail`: a causal sequence lies in that order.
void expandOnRing(mlir::OpBuilder &builder, mlir::Location loc, mlir::Operation *op, int64_t blocks, bool headTail);

} // namespace cleave::attention
