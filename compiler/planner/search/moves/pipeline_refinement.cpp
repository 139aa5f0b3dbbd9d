#include "compiler/planner/search/moves/pipeline_refinement.h"
#include "compiler/planner/certify/stage_bound.h"
#include "compiler/planner/certify/whole_units.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/search/moves/cut_improvement.h"
#include <algorithm>

namespace cleave::planner {
namespace {

// Pipelines that are solved again, of so many meshes that are no slower than this; bounds of their cuts are made
// tighter up to certifiedPart, with so many linear programs each.
constexpr size_t mostPipelines = 3;
// Good cuts are among the first.
constexpr int programsForCuts = 8;
// Units are moved in cuts by simulating as many as make this many passes of stages.
constexpr double movingWork = 1e6;
constexpr const char *followingSchedules[] = {"zb-1p", "zb-2p"};

} // namespace

void PipelineRefinement::refine() {
  for (const Solution &solution : bestPipelines()) {
    if (clock.isOver()) break;
    const Setting setting = solution.model->setting;
    Cells own(space.problem, space.facts, space.cluster, space.constraints);
    Cell &cell = own.at(setting);
    own.solve(cell);
    SplitModel model = own.modelFor(cell, setting);
    bool isTight = false;
    for (size_t v = 0; v < cell.variants.size() && !clock.isOver(); ++v) {
      const std::vector<int> choice = cell.variants[v].choice;
      StateCosts state = costState(model, choice);
      trials.tryPlan(space.stagesOf(model, own.activityOf(cell, v, model), state), choice, cell.isExact, isTight);
      if (isTight && v == 0) own.addLeaner(cell);
    }
    const Solution now = *found.bestOf(setting); // which may be replaced
    if (now.model->setting.schedule == setting.schedule) refineCuts(now);
  }
}

// Of meshes with stages that are no slower than is worth refining, and the runners-up asked for; the fastest first.
std::vector<Solution> PipelineRefinement::bestPipelines() const {
  std::vector<Solution> pipelines = found.fastestFirst();
  std::erase_if(pipelines, [](const Solution &solution) { return solution.model->setting.pp == 1; });
  const int64_t top = space.options.top;
  const size_t asked = top > 0 ? size_t(top) + 1 : 0; // the best, and runners-up
  const size_t most = std::max(mostPipelines, asked);
  if (pipelines.size() > most) pipelines.resize(most);
  while (pipelines.size() > asked && pipelines.back().seconds() > worthRefining * found.incumbent())
    pipelines.pop_back();
  return pipelines;
}

void PipelineRefinement::refineCuts(const Solution &given) {
  const SplitModel &model = *given.model;
  ActivityCosts activity = costActivity(model, given.choice);
  StateCosts state = costState(model, given.choice);
  StageProblem stages = space.stagesOf(model, activity, state);
  const double goal = certifiedPart * found.incumbent();
  const BoundWanted wanted{goal, boundOfWholeUnits(stages, goal)};
  const int programs = space.options.certifies ? mostPrograms : programsForCuts;
  StageBound bound = boundStages(stages, found.incumbent(), programs, wanted, clock);
  trials.tryCuts(stages, given.choice, given.isExact, bound.cuts);
}

void PipelineRefinement::certify() {
  std::vector<OpenPlan> &open = trials.open;
  double goal = certifiedPart * found.slowestAsked(), least = infinity;
  for (OpenPlan &plan : open) {
    if (plan.bound >= goal || clock.isOver()) continue;
    withStages(plan, [&](const StageProblem &stages, const std::vector<int> &) {
      plan.bound = std::max(plan.bound, boundOfWholeUnits(stages, goal));
    });
  }
  std::ranges::stable_sort(open, {}, &OpenPlan::bound);
  for (OpenPlan &plan : open) {
    if (plan.bound >= goal || clock.isOver()) break;
    withStages(plan, [&](const StageProblem &stages, const std::vector<int> &choice) {
      KnownPaths *known = &trials.pathsOf(plan.setting);
      StageBound bound = boundStages(stages, found.slowestAsked(), mostPrograms, {goal, plan.bound}, clock, known);
      plan.bound = std::max(plan.bound, bound.seconds);
      trials.tryCuts(stages, choice, plan.cell->isExact, bound.cuts);
    });
    // Nothing is gained by refuting what another plan might be anyway.
    goal = certifiedPart * found.slowestAsked();
    least = std::min(least, plan.bound);
    if (space.options.top <= 0) goal = std::min(goal, least);
  }
}

void PipelineRefinement::moveUnits() {
  for (const Solution &solution : bestPipelines()) {
    if (clock.isOver()) return;
    const SplitModel &model = *solution.model;
    const ActivityCosts activity = costActivity(model, solution.choice);
    const StateCosts state = costState(model, solution.choice);
    const StageProblem stages = space.stagesOf(model, activity, state);
    if (!stages.firstUnits.empty()) continue; // given
    const auto prices = int64_t(movingWork / double(model.setting.microbatches * stages.stages()));
    std::vector<int> cut = improvedCut(stages, solution.plan.firstUnits, prices, clock);
    const PlanEvaluation simulated = evaluatePlan(stages, planCut(stages, cut));
    trials.tryCuts(stages, solution.choice, solution.isExact,
                   {{std::move(cut), simulated.predicted.stepSeconds, simulated.fits}});
  }
}

void PipelineRefinement::withStages(const OpenPlan &plan,
                                    const std::function<void(const StageProblem &, const std::vector<int> &)> &use) {
  SplitModel model = cells.modelFor(*plan.cell, plan.setting);
  const CellVariant &variant = plan.cell->variants[plan.variant];
  const ActivityCosts &activity = cells.activityOf(*plan.cell, plan.variant, model);
  StateCosts state = costState(model, variant.choice);
  StageProblem stages = space.stagesOf(model, activity, state);
  use(stages, variant.choice);
}

void PipelineRefinement::tryFollowingSchedules() {
  if (space.constraints.schedule || !space.constraints.like.empty()) return;
  for (const Solution &solution : bestPipelines())
    for (const char *kind : followingSchedules) {
      SplitModel model = *solution.model;
      model.setting.schedule = kind;
      if (!space.givenRecomputation(model.setting)) continue; // of the stages of another schedule
      for (Setting setting : space.settings) {
        if (!sameMesh(setting, solution.model->setting) || setting.order != solution.model->setting.order) continue;
        if (setting.schedule != "1f1b" || clock.isOver()) continue; // one of each microbatch count
        setting.schedule = kind;
        Cell &cell = cells.at(setting);
        cells.solve(cell);
        if (!space.isOpen(setting) || space.stepBound(setting, cell.secondsBound) >= found.worthTrying()) continue;
        (void)trials.trySetting(setting, cell, infinity); // one that cannot be tried is none of the choices
      }
      if (!space.isOpen(model.setting) || clock.isOver()) continue;
      ActivityCosts activity = costActivity(model, solution.choice);
      StateCosts state = costState(model, solution.choice);
      const StageProblem stages = space.stagesOf(model, activity, state);
      std::vector<TimedCut> cuts; // all, where they are few, or that of the pipeline
      if (int(solution.plan.firstUnits.size()) == stages.stages()) cuts.push_back({solution.plan.firstUnits});
      trials.tryCuts(stages, solution.choice, solution.isExact,
                     timeEachCut(stages, found.worthTrying(), clock).value_or(cuts));
    }
}

} // namespace cleave::planner
