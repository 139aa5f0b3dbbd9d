// A model with the first way to split every operation and parameter, priced for stages.
//
//   FirstSplit split(*buildModel(problem, facts, cluster, {}, setting));
//   split.stages.memoryLimit = 1e9;
//   planCut(split.stages, {0})
#pragma once
#include "compiler/planner/stage_plan.h"
#include <utility>
#include <vector>

namespace cleave::planner::testing {

struct FirstSplit {
  explicit FirstSplit(SplitModel given)
      : model(std::move(given)), choice(model.variables.size(), 0), activity(costActivity(model, choice)),
        state(costState(model, choice)) {
    stages.model = &model;
    stages.activity = &activity;
    stages.state = &state;
  }
  FirstSplit(const FirstSplit &) = delete; // `stages` points to the others

  const SplitModel model;
  const std::vector<int> choice;
  const ActivityCosts activity;
  const StateCosts state;
  StageProblem stages;
};

} // namespace cleave::planner::testing
