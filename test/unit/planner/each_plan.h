// Every plan of a small pipeline, for tests that enumerate: all cuts with all ways to recompute.
//
//   enumerate(stages).best(bytes)     seconds of the fastest that fits
#pragma once
#include "compiler/planner/infinity.h"
#include "compiler/planner/search/space/settings.h"
#include "test/unit/planner/each_cut.h"
#include "test/unit/planner/first_split.h"

namespace cleave::planner::testing {

inline void eachRecomputation(const std::vector<Unit> &units, const std::vector<Recompute> &ways,
                              const std::function<void(const std::vector<Recompute> &)> &visit) {
  std::vector<Recompute> recompute(units.size(), ways[0]);
  std::function<void(size_t)> set = [&](size_t unit) {
    if (unit == units.size()) return visit(recompute);
    for (Recompute way : ways) {
      if (!units[unit].isBlock && way != ways[0]) continue;
      recompute[unit] = way;
      set(unit + 1);
    }
    recompute[unit] = ways[0];
  };
  set(0);
}

struct Plans {
  std::vector<std::pair<double, double>> all; // seconds, bytes
  double best(double limit) const {
    double least = infinity;
    for (auto [seconds, bytes] : all)
      if (bytes <= limit) least = std::min(least, seconds);
    return least;
  }
};

inline Plans enumerate(const StageProblem &problem) {
  Plans plans;
  const std::vector<Unit> &units = problem.model->layout->units;
  std::vector<Recompute> ways = problem.recompute ? std::vector<Recompute>{*problem.recompute} : problem.allowed;
  eachCut(int(units.size()), problem.stages(), [&](const std::vector<int> &starts) {
    if (!problem.firstUnits.empty() && starts != problem.firstUnits) return;
    eachRecomputation(units, ways, [&](const std::vector<Recompute> &recompute) {
      StagePlan plan;
      plan.firstUnits = starts;
      plan.recompute = recompute;
      PlanEvaluation evaluation = evaluatePlan(problem, plan);
      plans.all.emplace_back(evaluation.predicted.stepSeconds, evaluation.predicted.memory.total());
    });
  });
  return plans;
}

} // namespace cleave::planner::testing
