// Makes one command of many launches of a kernel that do not depend on each other: the optimizer's updates of all
// parameters become a launch or two (a "multi-tensor" update).
//
//   adamw(w0, g0, m0, v0); norm of b1; adamw(w1, g1, m1, v1)   ->   norm of b1; {adamw(w0, ...), adamw(w1, ...)}
//
// A launch waits for others of its kernel as long as no command in between touches its buffers or is an event that
// others wait for: memory has been planned by then, so a gradient whose bytes are used again is updated before.
#pragma once
#include "plan/plan.pb.h"

namespace cleave::codegen {

void groupLaunches(plan::Plan &plan);

} // namespace cleave::codegen
