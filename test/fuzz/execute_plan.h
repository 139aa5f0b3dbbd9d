// The work of `run` and `verify` on a plan that the static verifier has taken: a rehearsal, then a step of training or
// a step beside the reference. Its code is run as it is: whoever calls this leaves kernel_object alone.
#pragma once
#include "plan/plan.pb.h"
#include <string>

namespace cleave::fuzz {

// Empty: done, or refused with a message and status 1 or 4; else what is wrong. `trains`: a training, not a comparison.
std::string executePlan(const plan::Plan &plan, bool trains);

} // namespace cleave::fuzz
