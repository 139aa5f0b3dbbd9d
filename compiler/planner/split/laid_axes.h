// Mesh axes whose split of every node follows from the graph instead of being searched as that of tp: the inner axes of
// 2D, 2.5D and 3D tensor parallelism, and experts.
//
//   tp_col of 2d      a product makes its part of the columns, between products tensors lie split along them:
//                     x [b/row, s, k/col]   w [k/row, n/col]   y [b/row, s, n/col]
//                     x is gathered over col, w over row (as ZeRO-3 gathers it: row is a batch axis), the product local
//   tp_row, tp_col    x [b/(depth col), s, k/row]   w [k/row, n/col]/depth   y [b/(depth row), s, n/col]
//   of 3d             x is gathered over col, w over depth, y summed and scattered over row; the next product has row
//                     and col exchanged
//   ep                experts where a node works on stacked weights [e, k, n]; samples elsewhere
//
// Sources: Xu et al. 2021 (Optimus, arXiv 2104.05343), Wang et al. 2021 (Tesseract, 2105.14500: 2d with copies of the
// weights along depth, each for its samples), Bian et al. 2021 (3D, 2105.14450), Lepikhin et al. 2020 (GShard).
#pragma once
#include "compiler/planner/split/split_model.h"

namespace cleave::planner {

// Empty where the setting has no such axis. Errors: nothing in the graph that an axis could split.
Result<std::vector<LaidAxis>> layAxes(const Problem &problem, const ProblemFacts &facts, const Setting &setting);

// How many experts the products with stacked weights [experts, in, out] have, each number once: `ep` divides one of
// them.
std::vector<int64_t> expertCounts(const Problem &problem);

// The axes of a node's factors: the batch axes and those laid; nothing of tp and cp.
dist::FactorSharding laidSplit(const SplitModel &model, int node);

// How tensors lie over batch and laid axes, as the first reader wants them where the producer leaves a partial sum;
// parameters without the batch axes.
std::vector<dist::Sharding> laidLayouts(const SplitModel &model, const ProblemFacts &facts);

// The collectives over laid axes that bring every operand to its node and its gradient back, in the nodes' candidates.
void addLaidExchanges(SplitModel &model, const ProblemFacts &facts);

} // namespace cleave::planner
