#include "compiler/planner/search/moves/mix_refinement.h"
#include "compiler/planner/certify/stage_bound.h"
#include "compiler/planner/certify/whole_units.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/search/moves/mixed_zero.h"
#include "compiler/planner/search/moves/pipeline_refinement.h"
#include "compiler/planner/search/space/settings.h"
#include <algorithm>

namespace cleave::planner {
namespace {

// Stages are mixed in so many settings (orders of a mesh are one), with as many prices of each as make this many
// variables and microbatches.
constexpr size_t mostMixed = 24, mostWhereOnlyBest = 6;
constexpr size_t mostOfBest = 3; // and in the best plans of so many meshes
constexpr double mixingWork = 2e5;
// Bounds decide the stages of so many parameters, the largest ones.
constexpr size_t mostDecided = 6;

} // namespace

void MixRefinement::mix() {
  std::vector<Solution> best = found.fastestFirst();
  if (best.size() > mostOfBest) best.resize(mostOfBest);
  for (Solution &solution : best)
    if (mixesZeroStages(space.constraints, solution.model->setting) && !clock.isOver()) mixFrom(std::move(solution));
  sharpen(found.incumbent());
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

double MixRefinement::bound(double wanted) {
  const double close = space.isSmall() ? 1 : certifiedPart;
  double goal = std::min(wanted, close * found.incumbent()), least = infinity;
  sharpen(goal);
  for (OpenPlan &plan : trials.mixes) {
    if (plan.bound < goal && !clock.isOver()) plan.bound = std::max(plan.bound, branch(plan, {}, goal));
    // Nothing is gained by refuting what another plan might be anyway.
    least = std::min(least, plan.bound);
    goal = std::min(goal, least);
  }
  return least;
}

double MixRefinement::branch(const OpenPlan &plan, const ZeroMixes::Decided &decided, double goal) {
  double bound = 0;
  std::optional<size_t> next;
  withMixes(plan, decided, [&](const StageProblem &stages) {
    bound = boundOfWholeUnits(stages, goal);
    KnownPaths *known = &trials.pathsOf(plan.setting);
    if (bound < goal) bound = boundStages(stages, found.incumbent(), mostPrograms, {goal, bound}, clock, known).seconds;
    const std::vector<size_t> &largest = stages.mixes->largestFirst();
    if (decided.size() < std::min(mostDecided, largest.size())) next = largest[decided.size()];
  });
  double least = next ? goal : bound;
  for (size_t stage = 0; bound < goal && next && stage < 2 && !clock.isOver(); ++stage) {
    ZeroMixes::Decided more = decided;
    more.emplace_back(*next, stage);
    least = std::min(least, branch(plan, more, goal));
  }
  return clock.isOver() ? bound : std::max(bound, least);
}

double MixRefinement::known() const {
  double least = infinity;
  for (const OpenPlan &plan : trials.mixes) least = std::min(least, plan.bound);
  return least;
}

void MixRefinement::sharpen(double goal) {
  for (OpenPlan &plan : trials.mixes) {
    if (plan.bound >= goal || clock.isOver()) continue;
    withMixes(plan, {},
              [&](const StageProblem &stages) { plan.bound = std::max(plan.bound, boundOfWholeUnits(stages, goal)); });
  }
  std::ranges::stable_sort(trials.mixes, {}, &OpenPlan::bound);
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

void MixRefinement::withMixes(const OpenPlan &plan, const ZeroMixes::Decided &decided,
                              const std::function<void(const StageProblem &)> &use) {
  SplitModel model = cells.modelFor(*plan.cell, plan.setting);
  const std::vector<int> &choice = plan.cell->variants[plan.variant].choice;
  // What a microbatch costs with the stages that need least of it: that gradients are handed on follows from the higher
  // stage, as in every plan that mixes them.
  const SplitModel least = ZeroMixes::leanest(model, plan.zeroPair, decided);
  const ActivityCosts activity =
      decided.empty() ? cells.activityOf(*plan.cell, plan.variant, least) : costActivity(least, choice);
  model.setting.zero = ZeroMixes::pairs[plan.zeroPair][0];
  const ZeroMixes mixes(model, choice, activity, plan.zeroPair, decided);
  StageProblem stages = space.stagesOf(model, activity, mixes.least());
  stages.mixes = &mixes;
  use(stages);
}

} // namespace cleave::planner
