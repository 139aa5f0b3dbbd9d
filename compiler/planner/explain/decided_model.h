// A decision read back into the model its figures come from: what is reported beside the choice, and what the choice
// would cost elsewhere.
//
//   auto decided = decidedModel(problem, cluster, decision);
//   decided->evaluate().predicted.stepSeconds               // decision.predicted's, on the same cluster
//   decided->on(faster)->evaluate().predicted.stepSeconds   // the same split elsewhere
#pragma once
#include "compiler/planner/pipeline/stage_plan.h"
#include <set>
#include <string>

namespace cleave::planner {

struct DecidedModel {
  const Decision *decision = nullptr;
  std::shared_ptr<const ProblemFacts> facts;
  SplitModel model; // every candidate, also those that repeat work
  std::vector<int> choice;
  StagePlan plan; // stages and recomputation
  ActivityCosts activity;
  StateCosts state;

  // The pipeline's rank that a unit is on.
  int rankOf(int unit) const;
  // The profile is of the decision's schedule; memory is not limited.
  StageProblem stages() const;
  PlanEvaluation evaluate() const { return evaluatePlan(stages(), plan); }
  // The ZeRO stage of a parameter, as its gradient and state lie: 0 where ZeRO cannot cut it.
  static int zeroOf(const Decision &decision, const ParameterDecision &parameter);
  // With a lower ZeRO stage for those of these parameters that ZeRO can cut; shardings and stages stay as they are.
  DecidedModel withLowerZero(int zero, const std::set<std::string> &parameters) const;
  // On another cluster of as many devices, which must outlive the result.
  Result<DecidedModel> on(const Cluster &cluster) const;
};

// Errors: a decision that is not of this problem. All three must outlive the result.
Result<DecidedModel> decidedModel(const Problem &problem, const Cluster &cluster, const Decision &decision);

} // namespace cleave::planner
