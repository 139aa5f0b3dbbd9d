// Which layout the consumers of a value will want, found against the direction of execution. A gradient that comes out
// partial over dp is reduced straight into the layout in which the optimizer state lies (a reduce-scatter under ZeRO)
// instead of being reduced whole and cut later:
//
//   onnx.write @"exp_avg/w", %m2          home [{dp},{tp}]
//   %m2 = Add(Mul(%m, b1), Mul(%g, c))   so %g is wanted as [{dp},{tp}]
//
// A sum of gradients over microbatches, whose own layout follows from its terms, is wanted like the state.
#pragma once
#include "compiler/partition/layouts.h"

namespace cleave::partition {

// Hints for the values that elementwise chains, transposes and reshapes lead to a write; others have none.
llvm::DenseMap<mlir::Value, dist::Sharding> layoutHints(mlir::func::FuncOp function, const dist::Mesh &mesh,
                                                        mlir::SymbolTable &symbols);

} // namespace cleave::partition
