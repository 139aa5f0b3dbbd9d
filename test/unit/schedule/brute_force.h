// The shortest step that any order of the passes can have, for tiny pipelines: an exhaustive search over active
// schedules (Giffler and Thompson 1960), among which there is an optimal one. Sends take no time, memory is not
// limited, each rank takes its microbatches in order. Worked example: 2 ranks, 1 microbatch, passes of 1, not split: F0
// F0 B0 B0 = 6.
#pragma once
#include "compiler/schedule/schedule.h"

namespace cleave::planner {

// split: input and weight gradients are passes of their own.
double shortestMakespan(int ranks, int64_t microbatches, const StageTimes &times, bool split);

} // namespace cleave::planner
