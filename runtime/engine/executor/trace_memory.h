// The memory that a traced rank's values take over time: a byte of the arena beyond the persistent tensors counts from
// the command that writes it to the last one that reads it before it is written again.
//
//   y = x w  [10, 20 us]     z = relu(y)  [20, 25 us]     ->  +bytes(y) at 10 us, +bytes(z) at 20 us, -bytes(y) at 25
//   us
//
// A value that is read after the trace ends counts to the last read that the trace has.
#pragma once
#include "runtime/engine/executor/trace.h"

namespace cleave::runtime {

struct MemoryInUse {
  int64_t time = 0;  // nanoseconds
  int64_t bytes = 0; // from then on
};
// In order of time; a point where the bytes change.
std::vector<MemoryInUse> memoryInUse(const plan::Plan &plan, const plan::Program &program, int64_t rank,
                                     const std::deque<TraceLane> &lanes);

} // namespace cleave::runtime
