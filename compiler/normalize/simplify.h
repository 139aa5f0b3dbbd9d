// Identities of core ops. One op at a time, its operands being simple already:
//
//   Reshape(Reshape(x))  -> Reshape(x)       Reshape to its own shape -> x       Transpose(Transpose(x)) ->
//   Transpose(x) x * 1, x + 0, x / 1  -> x                Broadcast to its own shape -> x     Slice(Transpose(x)) ->
//   Transpose(Slice(x)) x ^ 2                -> x * x            Sum of one -> x                     And(x, true) -> x
//   Concat(x, [8,0]) -> x                a sum, a product over no entries -> 0
#pragma once
#include "compiler/normalize/core_builder.h"

namespace cleave::normalize {

// What `op`'s result equals in simpler terms (built with `b`, in front of `op`); null if nothing is simpler.
mlir::Value simplify(mlir::Operation *op, CoreBuilder &b);

} // namespace cleave::normalize
