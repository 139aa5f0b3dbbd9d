// What the search must know of a schedule before it has stages: how many activations a rank keeps and how long it
// waits (of two weight versions: in the steady state). Taken from the schedule itself, simulated with stages that are
// all alike.
//
//   scheduleProfile("1f1b", 4, 64)   live {4,3,2,1}, bubble 3: ranks wait as long as three microbatches take
#pragma once
#include "compiler/planner/schedule/schedule.h"

namespace cleave::planner {

struct ScheduleProfile {
  int stages = 1, chunks = 1; // chunks: stages of one rank
  std::vector<int> rankOfStage;
  bool splitsBackward = false;
  int weightVersions = 1; // 2: steps run into each other
  bool isFlushed() const { return weightVersions == 1; }
  std::vector<double> live; // by rank: microbatches whose activations it keeps at most, of all its chunks together
  double bubble = 0;        // waiting of a rank, in the time that one microbatch takes it (equal passes, no sends)
};

// From a cache; null when the kind cannot have so many ranks or microbatches.
const ScheduleProfile *scheduleProfile(const std::string &kind, int64_t ranks, int64_t microbatches);

} // namespace cleave::planner
