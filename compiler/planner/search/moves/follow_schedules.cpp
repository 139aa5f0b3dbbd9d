#include "compiler/planner/pipeline/few_cuts.h"
#include "compiler/planner/search/moves/move.h"
#include "compiler/planner/search/space/settings.h"

namespace cleave::planner {

void followSchedules(Search &search) {
  const SearchSpace &space = search.space;
  if (space.constraints.schedule || !space.constraints.like.empty()) return;
  // The gap is of the other schedules (comparedPlans() in compiler/report).
  const std::vector<OpenPlan> open = search.trials.open;
  const double bound = search.trials.bound;
  for (const Solution &solution : bestPipelines(search))
    for (const char *kind : {"zb-1p", "zb-2p"}) {
      SplitModel model = *solution.model;
      model.setting.schedule = kind;
      if (!space.givenRecomputation(model.setting)) continue; // of the stages of another schedule
      for (Setting setting : space.settings) {
        if (!sameMesh(setting, solution.model->setting) || setting.order != solution.model->setting.order) continue;
        if (setting.schedule != "1f1b" || search.clock.isOver()) continue; // one of each microbatch count
        setting.schedule = kind;
        Cell &cell = search.cells.at(setting);
        search.cells.solve(cell);
        if (!space.isOpen(setting) || space.stepBound(setting, cell.secondsBound) >= search.found.worthTrying())
          continue;
        (void)search.trials.trySetting(setting, cell, infinity); // one that cannot be tried is none of the choices
      }
      if (!space.isOpen(model.setting) || search.clock.isOver()) continue;
      const PricedSplit split(space, model, solution.choice);
      std::vector<TimedCut> cuts; // all, where they are few, or that of the pipeline
      if (int(solution.plan.firstUnits.size()) == split.stages.stages()) cuts.push_back({solution.plan.firstUnits});
      search.trials.tryCuts(split.stages, solution.choice, solution.isExact,
                            timeEachCut(split.stages, search.found.worthTrying(), search.clock).value_or(cuts));
    }
  search.trials.open = open;
  search.trials.bound = bound;
}

} // namespace cleave::planner
