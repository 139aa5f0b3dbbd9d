// The memory of a device while a step runs, by kind, as the estimate counts it, for each rank of a pipeline.
//
//   memoryOverTime(decided)->ranks[0]   {0.1 s, Forward, {parameters 10 GiB, gradients 0, ..., activations 3 GiB}},
//                                       ... {0.9 s, Backward, {10 GiB, gradients 8 GiB, ..., activations 5 GiB}}, ...
#pragma once
#include "compiler/planner/explain/decided_model.h"

namespace cleave::planner {

// The work of the device then: a forward or backward pass of a unit or stage, or the update at the step's end.
enum class StepPart : uint8_t { Forward, Backward, Update };
inline constexpr const char *stepPartNames[] = {"forward", "backward", "update"};

struct MemoryPoint {
  double seconds = 0; // from the step's start, at the end of the pass
  StepPart part = StepPart::Forward;
  MemoryBreakdown memory; // the most in the pass
};

struct MemoryOverTime {
  std::vector<std::vector<MemoryPoint>> ranks; // one without a pipeline
  size_t fullest = 0;                          // the rank whose devices are estimated to need most
};

// A rank has one point for each pass (with many, the fullest of each stretch), and one for the update. Parameters and
// optimizer state stay, and so do gradients that are added up over microbatches or in a stage. Those of a single
// microbatch are there from the pass on that makes them, and with them their buckets. Scratch of operations and what the
// update makes on its way have the same room.
// The fullest moment is never above the device's estimated memory, which counts together what need not be there
// together: gradients of a single microbatch and all that is kept for them; of a pipeline the last microbatch's buckets
// and all slots, and the slots of several stages or halves of a backward pass on one rank. Without any of these it is
// the estimate. Errors: a schedule that cannot be made.
Result<MemoryOverTime> memoryOverTime(const DecidedModel &decided);

} // namespace cleave::planner
