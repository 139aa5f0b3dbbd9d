#include "compiler/planner/certify/stage_bound.h"
#include "compiler/planner/search/moves/move.h"
#include <algorithm>

namespace cleave::planner {
namespace {

struct WantedBound {
  double incumbent, goal; // seconds: of the plan to beat; so high is high enough
};

// The bound that follows from whole units on ranks; cheap.
void boundWholeUnits(Search &, OpenPlan &plan, const StageProblem &stages, const WantedBound &wanted) {
  plan.bound = std::max(plan.bound, boundOfWholeUnits(stages, wanted.goal));
}

// The bound that follows from paths through the schedule: linear programs; dear.
void boundPaths(Search &search, OpenPlan &plan, const StageProblem &stages, const WantedBound &wanted) {
  const StageBound bound = boundStages(stages, wanted.incumbent, mostPrograms, {wanted.goal, plan.bound}, search.clock,
                                       &search.trials.pathsOf(plan.setting));
  plan.bound = std::max(plan.bound, bound.seconds);
  search.trials.tryCuts(stages, plan.cell->variants[plan.variant].choice, plan.cell->isExact, bound.cuts);
}

struct Bound {
  void (*raise)(Search &, OpenPlan &, const StageProblem &, const WantedBound &);
  bool ofEach; // of every open plan; else nothing is gained by refuting what another plan might be anyway
};
constexpr Bound bounds[] = {{boundWholeUnits, true}, {boundPaths, false}}; // the cheapest first

void raise(const Bound &bound, Search &search, OpenPlan &plan, const WantedBound &wanted) {
  const SplitModel model = search.cells.modelFor(*plan.cell, plan.setting);
  const ActivityCosts &activity = search.cells.activityOf(*plan.cell, plan.variant, model);
  const StateCosts state = costState(model, plan.cell->variants[plan.variant].choice);
  bound.raise(search, plan, search.space.stagesOf(model, activity, state), wanted);
}

} // namespace

void raiseBounds(Search &search) {
  if (!search.space.options.certifies) return;
  std::vector<OpenPlan> &open = search.trials.open;
  for (const Bound &bound : bounds) {
    std::ranges::stable_sort(open, {}, &OpenPlan::bound);
    double incumbent = search.found.slowestAsked(), goal = certifiedPart * incumbent, least = infinity;
    for (OpenPlan &plan : open) {
      if (plan.bound >= goal || search.clock.isOver()) break;
      raise(bound, search, plan, {incumbent, goal});
      if (bound.ofEach) continue;
      incumbent = search.found.slowestAsked();
      goal = certifiedPart * incumbent;
      least = std::min(least, plan.bound);
      if (search.space.options.top <= 0) goal = std::min(goal, least);
    }
  }
}

} // namespace cleave::planner
