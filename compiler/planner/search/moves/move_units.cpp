// Better cuts by moving single units: for schedules whose ranks have several stages each, where what is fast depends on
// which of them are longer, and no formula says it.
//
//   zb-v, 9 ranks, 40 blocks in 18 stages:   which of them have three, and on which ranks two of those meet
#include "compiler/planner/search/moves/move.h"
#include <utility>

namespace cleave::planner {
namespace {

// With what memory makes it compute again: bytes of the device that needs most where they are too many, else 0; and
// seconds.
using CutCost = std::pair<double, double>;

CutCost costOf(const StageProblem &stages, const std::vector<int> &firstUnits) {
  const PlanEvaluation evaluation = evaluatePlan(stages, planCut(stages, firstUnits));
  return {evaluation.fits ? 0 : evaluation.predicted.memory.total(), evaluation.predicted.stepSeconds};
}

bool isBetter(const CutCost &one, const CutCost &other) {
  if (one.first < other.first) return true;
  return one.first == other.first && one.second < other.second * (1 - leastGain);
}

// One unit less in stage `from`, one more in stage `to`; nothing where the former has only one.
bool move(std::vector<int> &firstUnits, int units, int from, int to) {
  const int end = size_t(from) + 1 < firstUnits.size() ? firstUnits[size_t(from) + 1] : units;
  if (end - firstUnits[size_t(from)] < 2) return false;
  for (int s = from + 1; s <= to; ++s) --firstUnits[size_t(s)];
  for (int s = to + 1; s <= from; ++s) ++firstUnits[size_t(s)];
  return true;
}

} // namespace

std::vector<int> improvedCut(const StageProblem &stages, std::vector<int> firstUnits, int64_t mostPrices,
                             const SearchClock &clock) {
  const int units = int(stages.model->layout->units.size()), count = stages.stages();
  CutCost best = costOf(stages, firstUnits);
  for (bool improved = true; improved;) {
    improved = false;
    for (int from = 0; from < count; ++from)
      for (int to = 0; to < count; ++to) {
        std::vector<int> other = firstUnits;
        if (from == to || !move(other, units, from, to)) continue;
        if (mostPrices-- <= 0 || clock.isOver()) return firstUnits;
        const CutCost cost = costOf(stages, other);
        if (!isBetter(cost, best)) continue;
        best = cost;
        firstUnits = std::move(other);
        improved = true;
      }
  }
  return firstUnits;
}

void moveUnits(Search &search) {
  constexpr double movingWork = 1e6; // passes of stages that are simulated for each
  for (const Solution &solution : bestPipelines(search)) {
    if (search.clock.isOver()) return;
    const PricedSplit split(search.space, *solution.model, solution.choice);
    const StageProblem &stages = split.stages;
    if (!stages.firstUnits.empty()) continue; // given
    const auto prices = int64_t(movingWork / double(solution.model->setting.microbatches * stages.stages()));
    std::vector<int> cut = improvedCut(stages, solution.plan.firstUnits, prices, search.clock);
    const PlanEvaluation simulated = evaluatePlan(stages, planCut(stages, cut));
    search.trials.tryCuts(stages, solution.choice, solution.isExact,
                          {{std::move(cut), simulated.predicted.stepSeconds, simulated.fits}});
  }
}

} // namespace cleave::planner
