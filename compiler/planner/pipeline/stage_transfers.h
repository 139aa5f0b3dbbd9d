// The least messages between stages, wherever they are cut: for bounds (whole_units.h, stage_bound.h).
#pragma once
#include "compiler/planner/pipeline/stage_plan.h"

namespace cleave::planner {

// The least transfers between stages, wherever they are cut: seconds of a message by the stage that sends it, over the
// link that lies there, bytes of a border's buffers, and bytes that a stage receives of a microbatch.
struct LeastTransfers {
  std::vector<double> sendForward, sendBackward; // 0 to a stage of the same rank
  double buffer = 0, received = 0, returned = 0;
  // Bytes that a stage needs for them.
  double bytesOf(const StageProblem &problem, int stage) const;
};
LeastTransfers leastTransfers(const StageProblem &problem);
// The least time that collectives and messages on one link hold each other up (holdBySends()), in any cut.
struct LeastHeld {
  double seconds = 0;                       // of a microbatch's passes, both together
  double sendForward = 0, sendBackward = 0; // of one message
};
std::vector<LeastHeld> leastHeld(const StageProblem &problem); // by stage
// The ranks of the first and of the last stage, which sum gradients of a parameter that both read.
GroupShape pairOfEnds(const StageProblem &problem);

} // namespace cleave::planner
