// A loss that the graph computes itself, as sums over samples: what several microbatches add up to the batch's.
//
//   Neg(ReduceMean(x))                        a mean: the mean of the microbatches' losses
//   ReduceSum(x) + ReduceMean(y)              each term is scaled so that the mean of the microbatches' is the batch's
//   ReduceSum(x * mask) / ReduceSum(mask)     a mean with its own count: sum and count are added up, then divided
//   ReduceSum(x * mask) / Max(ReduceSum(mask), 1) + 0.3 * ReduceSum(y * seen) / ReduceSum(seen)
//                                             the counts, made of inputs alone, are those of the batch: added up ahead
//
// A coefficient says which a term is: the mean's is 1 / samples, so that of a microbatch is M times that of the batch.
#pragma once
#include "compiler/training/losses.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <string>
#include <vector>

namespace cleave::training {

struct GraphLoss {
  // The coefficients of the sums over samples, in the order in which the loss reads them.
  std::vector<double> coefficients;
  // A node that is none of the above (a logarithm of a sum over samples, a product of two means); empty: none. A batch
  // of several microbatches then has the mean of what they have there.
  std::string meetsAt;
  LossTerms terms;
  // Of several microbatches: one's part of each count. The loss reads the batch's from the tensor countTensor(i).
  llvm::SmallVector<mlir::Value> counts;
};

// `loss`: one number. `whole`: the coefficients at the whole batch, where the module is built at one of `microbatches`.
GraphLoss splitGraphLoss(onnx::Formula f, mlir::func::FuncOp model, mlir::Value loss, bool isMean, int64_t microbatches,
                         const std::vector<double> &whole);

} // namespace cleave::training
