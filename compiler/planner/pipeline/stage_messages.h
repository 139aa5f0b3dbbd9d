// The messages between stages in a given cut, and the cut where they are short.
//
//   units of 1 s; a message of 9 s over any border but the third, of 2 s there, 2 stages:   [3 units] [5]   5 s
#pragma once
#include "compiler/planner/pipeline/stage_plan.h"

namespace cleave::planner {

// `starts`: first unit of each stage. Returns the seconds for each of a rank's stages, of the rank and link that
// messages of a microbatch keep busy longest. One at a time goes over a link.
double longestMessages(const StageProblem &problem, const std::vector<int> &starts);

// The cut whose slowest stage is fastest, each taking what its passes or its messages do, whatever is longer. `before`:
// seconds of a microbatch through all units before each, and through all.
std::vector<int> cutByMessages(const StageProblem &problem, const std::vector<double> &before);

} // namespace cleave::planner
