// A decision as a person reads it, and as test/planner records it: what was chosen, what it costs and how far from the
// best it may be. Blocks that repeat are told once, and nothing differs from one run or machine to the next.
//
//   mesh pp=2,tp=2
//   zero 0
//   ...
//   step 0.412345 s: compute 0.35, exposed 0.05, bubble 0.012345, hidden 0.08
//   stage 0 on rank 0: 2 devices, 36 nodes (0-35), 3 blocks, ...
//   node "/layers.0/mlp/up/MatMul" Contract x12: 8 2048/tp 8192       factors, with the axes that split them
//   parameter "layers.0.mlp.up.weight" x12: [-,tp] gradient [-,tp] state [-,tp]
#pragma once
#include "compiler/cluster/cluster.h"
#include "compiler/planner/problem/decision.h"
#include <string>

namespace cleave::planner {

// The decision is one of the problem (verify()).
std::string summaryText(const Problem &problem, const Cluster &cluster, const Decision &decision);

} // namespace cleave::planner
