// The points of the outer search: every way to lay the mesh axes, microbatches and schedules on the devices that the
// constraints leave open. ZeRO stages and recomputation are chosen on each.
//
//   a100-80g:8, batch 16: pp=2,dp=2,tp=2 with 1, 2, 4 or 8 microbatches, schedule 1f1b or zb-h1, ...
#pragma once
#include "compiler/planner/search/space/search_options.h"
#include "compiler/planner/split/split_model.h"

namespace cleave::planner {

std::vector<int64_t> divisors(int64_t number); // from 1 up

// With `mustDivide` the samples divide over the batch axes; without, only settings where they do not.
std::vector<Setting> openSettings(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                                  const Constraints &constraints, bool mustDivide);
std::vector<int> openZeroStages(const Constraints &constraints, const Setting &setting);
// May parameters have ZeRO stages of their own (mix_zero.cpp)?
bool mixesZeroStages(const Constraints &constraints, const Setting &setting);
// Ways of recomputation that blocks may be given one by one.
std::vector<Recompute> openRecomputation(const Constraints &constraints, const RecomputeSegments &segments);

} // namespace cleave::planner
