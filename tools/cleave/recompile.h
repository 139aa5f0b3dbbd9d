// `cleave run --elastic` and `--recipe`: the plan of a run is compiled anew, by every process alike.
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <string>
#include <vector>

namespace cleave::tool {

struct Recompiling {
  int64_t devices = 0;                // 0: as many as the plan has
  std::string recipe;                 // a file in place of the plan's recipe; "": the plan's own
  std::vector<std::string> overrides; // KEY=VALUE, of that file
  std::string resumed;                // the snapshots that the run goes on from; "": none
};

// The same model and kind of machine, the split chosen anew. A cluster of 2 nodes of 8 becomes 1 node of 8 for 8
// devices, 1 node of 4 for 4. Error: the model is gone, no split fits (exit status 3), `devices` is more than a node and
// no multiple of it, the recipe's.
Result<plan::Plan> recompile(const plan::Plan &plan, const Recompiling &how);

} // namespace cleave::tool
