// What all processes of a run need the same of before they go on together.
//
//     Status s = agreeOn(control, {{"--steps", "100"}}, limits.preparation);
//         // "rank 1: --steps is '40', and '100' on rank 0: all ranks of a run need the same"
#pragma once
#include "runtime/engine/comm/control_plane.h"
#include <string>
#include <utility>
#include <vector>

namespace cleave::runtime {

using RunRecord = std::vector<std::pair<std::string, std::string>>; // what it is, and its value; in one order

// Error, on all of them: the rank and the value that differs from rank 0's; or as of ControlPlane.
Status agreeOn(ControlPlane &control, const RunRecord &mine, TimeLimit limit);

} // namespace cleave::runtime
