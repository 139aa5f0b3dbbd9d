// Chooses the split: outside, mesh shapes, ZeRO stages, microbatch counts and recomputation are enumerated; inside, the
// factor that tensor parallelism takes in every node is chosen exactly (assignment.h). The objective is the predicted
// step time within the device's memory (cost.h).
//
//   auto cluster = parseCluster("a100-80g:8x128");
//   auto constraints = parseConstraints({.zero = "3"}, *cluster);
//   Result<Decision> decision = solve(problem, usedBy(problem, *cluster), *constraints, {});
//
// When nothing fits the status is ErrorKind::NoFit and its message lists the smallest changes that would.
#pragma once
#include "compiler/cluster/cluster.h"
#include "compiler/planner/problem/constraints.h"
#include "compiler/planner/problem/decision.h"
#include "compiler/planner/problem/problem.h"
#include "compiler/planner/search/space/search_options.h"
#include "runtime/base/status.h"

namespace cleave::planner {

// The cluster as the problem's step uses it: a known GPU has attention fused only where the step leaves it to a
// library.
Cluster usedBy(const Problem &problem, Cluster cluster);

Result<Decision> solve(const Problem &problem, const Cluster &cluster, const Constraints &constraints,
                       const SearchOptions &options);

} // namespace cleave::planner
