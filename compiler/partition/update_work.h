// The work of a parameter's update beside passing over it once, where it sums or multiplies over it: Muon's products,
// the norms of LAMB and Adafactor; and the part of this that devices with parts of the parameter have to exchange.
//
//   Muon, w [rows, columns], rows <= columns:  s = x x^T;  q = s s;  x = a x + (b s + c q) x, five times
//   split by rows     each device makes its rows of s, q and x, and gathers x and s
//   split by columns  each has a part of the sum s, which is combined; q is made by all
#pragma once
#include "compiler/planner/problem/problem.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"

namespace cleave::partition {

// By parameter, of a step's function that is not split; none where an update passes over its parameter only.
llvm::StringMap<planner::UpdateWork> updateWork(mlir::func::FuncOp step, const mlir::SymbolTable &symbols);

} // namespace cleave::partition
