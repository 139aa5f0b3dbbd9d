// A product of the backward pass is split as the forward product it belongs to: the planner prices a node and its
// backward as one (problem.h), and the formulas of published splits count on it.
//
//   y = Contract x, w   b=dp s=cp n=tp       dw = Contract x, dy   takes b=dp s=cp n=tp: partial(dp,cp) [{},{tp}]
//
// Its operands alone would not say so: with dy split otherwise the cheapest next step may be to gather x.
#pragma once
#include "compiler/partition/layouts.h"

namespace cleave::partition {

// Nothing for other operations, and for products of recomputed values.
std::optional<dist::FactorSharding> mirroredSplit(mlir::Operation *op);

} // namespace cleave::partition
