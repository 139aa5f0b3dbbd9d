// `cleave run --elastic`: a plan compiled anew for the number of processes that were started.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"

namespace cleave::tool {

// The same model, recipe and kind of machine, the split chosen anew; what every process compiles is the same. A cluster
// of 2 nodes of 8 becomes 1 node of 8 for 8 devices, 1 node of 4 for 4. Error: the model is gone, no split fits (exit
// status 3), or `devices` is more than a node and no multiple of it.
Result<plan::Plan> recompileFor(const plan::Plan &plan, int64_t devices);

} // namespace cleave::tool
