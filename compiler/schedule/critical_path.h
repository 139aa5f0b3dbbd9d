// The sums that a schedule's length depends on. With a given table a rank is done at the largest of many sums, one for
// each path through the table's dependencies: so many forward passes of this stage, so many backward passes of that
// one, so many sends. Whatever the stages' times are, no rank is done sooner than along any one path: paths found at
// some times are lower bounds at all others.
//
//   1f1b, 2 ranks, 2 microbatches, all passes 1:  F0 -> F1 on rank 0, F1 B1 on rank 1, B1 on rank 0
//     rank 0 is not done before  2 f0 + f1 + b1 + w1 + b0 + w0    for example; nor before 2 (f0 + b0 + w0)
#pragma once
#include "compiler/schedule/schedule.h"

namespace cleave::planner {

struct SchedulePath {
  int rank = 0;                                               // whose last action it ends with
  std::vector<double> forward, backwardInput, backwardWeight; // by stage: passes on the path
  std::vector<double> sendForward, sendBackward;              // by stage that sends
  double seconds(std::span<const StageTimes> stages) const;   // `stages`: one for each
  bool operator==(const SchedulePath &other) const = default;
};

// Paths through one table that decided bounds of its plans (stage_bound.h). They are paths whatever the stages' times
// are, and the plans of a table are alike: a bound that begins with those of another takes a few programs, not many.
using KnownPaths = std::vector<SchedulePath>;

// For each rank a longest path to the end of its last action, with these times; sends of one link are taken not to wait
// for each other. One entry in `stages` for each stage, or one for all.
std::vector<SchedulePath> criticalPaths(const PipelineSchedule &schedule, std::span<const StageTimes> stages);

} // namespace cleave::planner
