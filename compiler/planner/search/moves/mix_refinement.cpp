#include "compiler/planner/search/moves/mix_refinement.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/search/moves/mixed_zero.h"
#include "compiler/planner/search/space/settings.h"
#include <algorithm>

namespace cleave::planner {
namespace {

// Stages are mixed in so many settings (orders of a mesh are one), with as many prices of each as make this many
// variables and microbatches.
constexpr size_t mostMixed = 24, mostWhereOnlyBest = 6;
constexpr size_t mostOfBest = 3; // and in the best plans of so many meshes
constexpr double mixingWork = 2e5;

} // namespace

void MixRefinement::mix() {
  std::vector<Solution> best = found.fastestFirst();
  if (best.size() > mostOfBest) best.resize(mostOfBest);
  for (Solution &solution : best)
    if (mixesZeroStages(space.constraints, solution.model->setting) && !clock.isOver()) mixFrom(std::move(solution));
  for (OpenPlan &plan : trials.mixes) {
    bool wantsLeaner = false;
    if (plan.bound < found.incumbent() && !plan.cell->cutsExchanges && !clock.isOver())
      plan.bound = std::max(plan.bound, trials.leastOfAnyZero(plan.setting, *plan.cell, plan.variant, wantsLeaner));
  }
  std::ranges::stable_sort(trials.mixes, {}, &OpenPlan::bound);
  std::vector<Setting> mixed;
  const size_t most = space.options.onlyBest ? mostWhereOnlyBest : mostMixed;
  for (const OpenPlan &plan : trials.mixes) {
    if (plan.bound >= found.incumbent() || mixed.size() == most || clock.isOver()) break;
    auto isSame = [&](const Setting &other) {
      return sameMesh(other, plan.setting) && other.microbatches == plan.setting.microbatches &&
             other.schedule == plan.setting.schedule;
    };
    if (std::ranges::any_of(mixed, isSame)) continue;
    mixed.push_back(plan.setting);
    if (std::optional<Solution> from = uniform(plan)) mixFrom(std::move(*from)); // mixed where one for all fits
  }
}

std::optional<Solution> MixRefinement::uniform(const OpenPlan &plan) const {
  std::optional<Solution> best;
  const CellVariant &variant = plan.cell->variants[plan.variant];
  for (int zero : openZeroStages(space.constraints, plan.setting)) {
    SplitModel model = cells.modelFor(*plan.cell, plan.setting);
    model.setting.zero = zero;
    const ActivityCosts &activity = cells.activityOf(*plan.cell, plan.variant, model);
    const StateCosts state = costState(model, variant.choice);
    const StageProblem stages = space.stagesOf(model, activity, state);
    std::optional<StagePlan> cut = planStages(stages);
    if (!cut || !cut->fits) continue;
    Solution solution{std::make_shared<SplitModel>(model), variant.choice, *cut, {}, plan.cell->isExact};
    solution.evaluation = evaluatePlan(stages, *cut);
    if (solution.evaluation.fits && (!best || solution.seconds() < best->seconds())) best = std::move(solution);
  }
  return best;
}

void MixRefinement::mixFrom(Solution solution) {
  auto model = std::make_shared<SplitModel>(*solution.model);
  const SplitModel from = *model;
  const ActivityCosts activity = costActivity(from, solution.choice);
  const StateCosts state = costState(from, solution.choice);
  const StageProblem stages = space.stagesOf(from, activity, state);
  const double work = double(from.setting.microbatches * from.setting.pp) + double(solution.choice.size());
  mixZero(stages, openZeroStages(space.constraints, from.setting), solution.choice, int64_t(mixingWork / work),
          found.secondsOf(from.setting), model, solution.plan, solution.evaluation, clock);
  solution.model = std::move(model);
  found.record(std::move(solution));
}

} // namespace cleave::planner
