// Better cuts of a pipeline, by moving single units: for schedules whose ranks have several stages each, where what is
// fast depends on which of them are longer, and no formula says it.
//
//   zb-v, 9 ranks, 40 blocks in 18 stages:   which of them have three, and on which ranks two of those meet
#pragma once
#include "compiler/planner/pipeline/stage_plan.h"
#include "compiler/planner/search_clock.h"

namespace cleave::planner {

// The cut that is left when no unit of a stage makes the simulated step shorter in any other stage, all between them
// moving on by one; what is computed again is chosen anew each time. At most `mostPrices` are simulated, until the
// clock is over. Where `firstUnits`, of each stage, does not fit, what needs fewer bytes is better.
std::vector<int> improvedCut(const StageProblem &stages, std::vector<int> firstUnits, int64_t mostPrices,
                             const SearchClock &clock);

} // namespace cleave::planner
