// Where a model computes with the number of samples of its batch: a microbatch would compute with its own number there.
//
//   x * Shape(x)[0]            "Mul": by 8, and in a microbatch of 4 by 4
//   x * linspace(0, 1, B)      "Mul": a table with another entry for each sample
//   x + zeros(B, 5)            nowhere: an extent, of entries that are the same for all samples
//   Sum(e) / Shape(x)[0]       nowhere: the coefficient of a sum over samples, which AttachLoss knows (graph_loss.h)
#pragma once
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <string>

namespace cleave {

struct BatchSizeUse {
  std::string node;       // the first that computes with it; "": none
  bool isCertain = false; // false: the graphs have other operations there, as folding may leave them at some sizes
};

// Of one model, normalized for batches of two sizes.
BatchSizeUse findBatchSizeUse(mlir::func::FuncOp model, mlir::func::FuncOp other);

} // namespace cleave
