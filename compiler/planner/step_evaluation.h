// Adds the prices of an assignment up: seconds a step and bytes a device, without pipeline (stages: stage_costs.h).
//
//   Evaluation e = evaluate(model, choice);   // choice[v]: index into variable v's candidates or homes
//   e.predicted.stepSeconds, e.predicted.memory.total()
#pragma once
#include "compiler/planner/pricing.h"

namespace cleave::planner {

// Compute seconds that communication can hide behind: forward and backward parts.
struct Overlap {
  double forward = 0, backward = 0;
};
Overlap overlapOf(const SplitModel &model);

struct Evaluation {
  Price price;
  Predicted predicted;
  bool isPossible = true;
};
Evaluation evaluate(const SplitModel &model, const std::vector<int> &choice, CollectiveSink *sink = nullptr);

} // namespace cleave::planner
