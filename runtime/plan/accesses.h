// What a command reads and writes, and which commands are done when it is.
//
//   for (const Access &access : accessesOf(command, &plan)) ...      // "lhs" of a contract is read, "out" written
//   clocksOf(fragment)->at(7).done[communicationLane]                // of that lane, the last command known to be done
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/byte_ranges.h"
#include "runtime/base/status.h"
#include "runtime/plan/routine.h"
#include <array>
#include <memory>
#include <vector>

namespace cleave::runtime {

// A buffer that a command reads or writes.
struct Access {
  const plan::Buffer *buffer;
  bool write;
  const char *role;                              // "lhs", "out", "input 3"
  std::shared_ptr<const plan::Buffer> span = {}; // holds `buffer` where it is no buffer of the command's message
};
// All buffers of a command. A Launch writes the last num_outputs of its kernel; without a plan, or when the kernel
// does not say, all count as written.
std::vector<Access> accessesOf(const plan::Command &command, const plan::Plan *plan = nullptr);

// Bytes of the memory that the buffer is in: the arena, the host's memory, or either of a slot.
ByteRange bytesOf(const plan::Buffer &buffer);
bool overlap(const plan::Buffer &a, const plan::Buffer &b);

// Every device has a thread a lane (routine.h); each runs its commands in issue order, and after the events that they
// wait for. By lane, the number in the fragment of its last command that is done when this one is; -1: none.
struct LaneClock {
  std::array<int, numLanes> done;
  LaneClock() { done.fill(-1); }
};
// By command. Error: an event that no command before records, or two record.
Result<std::vector<LaneClock>> clocksOf(const plan::Fragment &fragment);

} // namespace cleave::runtime
