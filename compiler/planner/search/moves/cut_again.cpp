#include "compiler/planner/certify/stage_bound.h"
#include "compiler/planner/search/moves/move.h"

namespace cleave::planner {
namespace {

// Good cuts are among those of the first linear programs.
constexpr int programsForCuts = 8;

// At the cuts where bounds of all cuts have their least values.
void refineCuts(Search &search, const Solution &given) {
  const PricedSplit split(search.space, *given.model, given.choice);
  const double goal = certifiedPart * search.found.incumbent();
  const BoundWanted wanted{goal, boundOfWholeUnits(split.stages, goal)};
  const int programs = search.space.options.certifies ? mostPrograms : programsForCuts;
  const StageBound bound = boundStages(split.stages, search.found.incumbent(), programs, wanted, search.clock);
  search.trials.tryCuts(split.stages, given.choice, given.isExact, bound.cuts);
}

} // namespace

void cutAgain(Search &search) {
  const SearchSpace &space = search.space;
  for (const Solution &solution : bestPipelines(search)) {
    if (search.clock.isOver()) break;
    const Setting setting = solution.model->setting;
    Cells own(space.problem, space.facts, space.cluster, space.constraints);
    Cell &cell = own.at(setting);
    own.solve(cell);
    const SplitModel model = own.modelFor(cell, setting);
    bool isTight = false;
    for (size_t v = 0; v < cell.variants.size() && !search.clock.isOver(); ++v) {
      const std::vector<int> choice = cell.variants[v].choice;
      const StateCosts state = costState(model, choice);
      search.trials.tryPlan(space.stagesOf(model, own.activityOf(cell, v, model), state), choice, cell.isExact,
                            isTight);
      if (isTight && v == 0) own.addLeaner(cell);
    }
    const Solution now = *search.found.bestOf(setting); // which may be replaced
    if (now.model->setting.schedule == setting.schedule) refineCuts(search, now);
  }
}

} // namespace cleave::planner
