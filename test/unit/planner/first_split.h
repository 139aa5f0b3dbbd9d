// A model with the first way to split every operation and parameter, priced for stages.
//
//   FirstSplit first(*buildModel(problem, facts, cluster, {}, setting));
//   split.stages.memoryLimit = 1e9;
//   planCut(split.stages, {0})
#pragma once
#include "compiler/planner/pipeline/stage_plan.h"
#include "compiler/planner/search/space/settings.h"
#include <limits>
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

// The same in the stages of the setting's schedule, with all that it is made of and as much memory as it takes.
class FirstStages {
public:
  FirstStages(Problem given, const Cluster &on, const Setting &setting)
      : problem(std::move(given)), cluster(on),
        first(*buildModel(problem, gatherFacts(problem, cluster.device, {}), cluster, {}, setting)) {
    first.stages.profile = scheduleProfile(setting.schedule, setting.pp, setting.microbatches);
    first.stages.memoryLimit = std::numeric_limits<double>::infinity();
  }
  // Is there such a schedule, and a unit for each of its stages?
  bool isPossible() const {
    return first.stages.profile && first.stages.stages() <= int(first.model.layout->units.size());
  }
  StageProblem stages(std::optional<Recompute> recompute, std::vector<Recompute> allowed = {}) const {
    StageProblem result = first.stages;
    result.recompute = recompute;
    result.allowed = std::move(allowed);
    return result;
  }

private:
  const Problem problem;
  const Cluster cluster;

public:
  FirstSplit first;
};

} // namespace cleave::planner::testing
