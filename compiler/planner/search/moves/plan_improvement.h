// Improves a plan by changing how one operation, or two neighbours, are split, priced as the report prices it.
//
// The inner problem (assignment.h) minimises a sum over all operations. A step's time is more than that: the slowest
// stage counts, not the sum of all; a unit that waits for its host anyway communicates for nothing. What the sum takes
// for a little slower may be the faster plan.
//
//   two stages of 3 ms and 2 ms; splitting the first's sum over tp: 2.9 ms and 2.2 ms     found: the sum is larger
#pragma once
#include "compiler/planner/pipeline/stage_plan.h"
#include "compiler/planner/search_clock.h"

namespace cleave::planner {

// Stages and recomputation stay. `choice` and `evaluation` are replaced where a faster plan within the memory is found;
// at most `mostPrices` plans are priced, until the clock is over. Deterministic but for that.
void improvePlan(const StageProblem &stages, const StagePlan &plan, int64_t mostPrices, std::vector<int> &choice,
                 PlanEvaluation &evaluation, const SearchClock &clock);

} // namespace cleave::planner
