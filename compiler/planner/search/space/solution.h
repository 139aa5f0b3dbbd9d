// A plan that a search has priced: a setting, how every operation is split, and how the units lie on stages.
#pragma once
#include "compiler/planner/pipeline/stage_plan.h"
#include "compiler/planner/problem/decision.h"
#include "compiler/planner/search/space/assignment.h"
#include <memory>

namespace cleave::planner {

struct Solution {
  std::shared_ptr<const SplitModel> model; // with the setting
  std::vector<int> choice;
  StagePlan plan;
  PlanEvaluation evaluation;
  bool isExact = true; // false: the graph was too wide to eliminate
  double seconds() const { return evaluation.predicted.stepSeconds; }
  double bytes() const { return evaluation.predicted.memory.total(); }
};

// The recomputation of most of its blocks.
Recompute mostRecomputed(const Solution &solution);
// The decision that a solution stands for, without alternatives and search figures.
Decision toDecision(const Problem &problem, const Solution &solution);

} // namespace cleave::planner
