// A decision read back into the model its figures come from: what is reported beside the choice, and what the choice
// would cost elsewhere.
//
//   auto decided = decidedModel(problem, cluster, decision);
//   decided->evaluate().predicted.stepSeconds               // decision.predicted's, on the same cluster
//   decided->on(faster)->evaluate().predicted.stepSeconds   // the same split elsewhere
#pragma once
#include "compiler/planner/stage_plan.h"

namespace cleave::planner {

struct DecidedModel {
  const Decision *decision = nullptr;
  std::shared_ptr<const ProblemFacts> facts;
  SplitModel model; // every candidate, also those that repeat work
  std::vector<int> choice;
  StagePlan plan; // stages and recomputation
  ActivityCosts activity;
  StateCosts state;

  // The profile is of the decision's schedule; memory is not limited.
  StageProblem stages() const;
  PlanEvaluation evaluate() const { return evaluatePlan(stages(), plan); }
  // On another cluster of as many devices, which must outlive the result.
  Result<DecidedModel> on(const Cluster &cluster) const;
};

// Errors: a decision that is not of this problem. All three must outlive the result.
Result<DecidedModel> decidedModel(const Problem &problem, const Cluster &cluster, const Decision &decision);

} // namespace cleave::planner
