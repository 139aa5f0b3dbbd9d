// ZeRO stages by group of parameters: those of one kind in all repetitions of a block, or one that stands alone. What a
// stage saves and what it costs differs between them, and with one stage for all the memory that is left is not used.
//
//   ZeRO-3 fits with 20 GiB to spare, ZeRO-1 does not: the groups whose gathers cost most for each byte that they save
//   keep ZeRO-1 until the memory is full, the others ZeRO-3
//
// Two stages at a time (Setting::zero and lowerZero, SplitModel::lowers), the cut into stages as given or planned
// again, recomputation chosen again. Of up to six groups every set of them, with every two stages, is priced.
#pragma once
#include "compiler/planner/pipeline/stage_plan.h"
#include "compiler/planner/search_clock.h"
#include <memory>

namespace cleave::planner {

// `model`, `plan` and `evaluation` are replaced where a plan is found that fits and is faster, and faster than `worth`
// seconds; at most `mostPrices` are priced, until the clock is over. `open`: ZeRO stages allowed. Deterministic but for
// the clock.
void mixZero(const StageProblem &stages, const std::vector<int> &open, const std::vector<int> &choice,
             int64_t mostPrices, double worth, std::shared_ptr<SplitModel> &model, StagePlan &plan,
             PlanEvaluation &evaluation, const SearchClock &clock);

} // namespace cleave::planner
