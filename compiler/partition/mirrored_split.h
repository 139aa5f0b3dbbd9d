// A product of the backward pass is split as the forward product it belongs to: the planner prices a node and its
// backward as one (problem.h), and the formulas of published splits count on it.
//
//   y = Contract x, w   b=dp s=cp n=tp       dw = Contract x, dy   takes b=dp s=cp n=tp: partial(dp,cp) [{},{tp}]
//
// Its operands alone would not say so: with dy split otherwise the cheapest next step may be to gather x. They belong
// together by the operand that both read; where that is computed again for one of them, by a number that Recompute has
// given both before (`place.product`), and in fp8, where a weight is rounded for each, BuildBackward.
//
// Its result is the gradient of the forward product's other operand, and lies as that operand does once its partial
// sums are combined: a reduce-scatter where the operand was gathered, an all-reduce where it was whole.
#pragma once
#include "compiler/partition/layouts.h"

namespace cleave::partition {

struct MirroredProduct {
  dist::FactorSharding split;
  mlir::Value differentiated; // by which the result is the derivative
};

class MirroredProducts {
public:
  explicit MirroredProducts(mlir::func::FuncOp function);
  // Nothing for other operations.
  std::optional<MirroredProduct> find(mlir::Operation *op) const;

private:
  llvm::DenseMap<int64_t, mlir::Operation *> forward; // by number
};

// Gives products of the forward pass and those of the backward pass that belong to them their numbers, where they have
// none.
void numberProducts(mlir::func::FuncOp function);

} // namespace cleave::partition
