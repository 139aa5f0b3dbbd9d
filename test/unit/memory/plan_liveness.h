// The use of a compiled plan's arena while a step runs, from its commands alone: a byte is in use from a write to
// the last read before the next write.
//
//   PlanMemory memory = memoryOf(plan, plan.programs(0));
//   memory.most("backward")     bytes at the fullest command of the backward pass
#pragma once
#include "plan/plan.pb.h"
#include <string>
#include <vector>

namespace cleave {

struct PlanMemory {
  struct Moment {
    // The phase of a command of the compute stream: "forward", "backward", or behind the last backward pass "update". A
    // command of the update that stands before is between commands of a backward pass.
    std::string phase;
    double bytes = 0;
  };
  std::vector<Moment> moments; // in the order of issue

  double most(const std::string &phase) const;
  double most() const;
};

// Persistent tensors, constants and the library's scratch are there all the time. A buffer that another stream reads
// and writes is in use until the compute stream has waited for it.
PlanMemory memoryOf(const plan::Plan &plan, const plan::Program &program);

} // namespace cleave
