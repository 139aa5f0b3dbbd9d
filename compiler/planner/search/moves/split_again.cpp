#include "compiler/planner/search/moves/move.h"

namespace cleave::planner {

void splitAgain(Search &search) {
  constexpr int64_t mostRefinements = 6;
  const SearchSpace &space = search.space;
  if (space.isSmall() || !space.constraints.recomputeOf.empty()) return; // else all were solved so
  int64_t refined = 0;
  for (const Solution &solution : search.found.fastestFirst()) {
    if (solution.model->setting.pp > 1 || ++refined > mostRefinements) continue;
    SplitModel model = *solution.model;
    for (Recompute how : space.openWays()) {
      model.setting.recompute = how;
      if (search.clock.isOver()) return;
      const Assignment assignment =
          InnerProblem(model).solve(space.memoryLimit, search.found.incumbent(), search.clock);
      if (!assignment.isPruned) search.trials.offer(model, assignment);
    }
  }
}

} // namespace cleave::planner
