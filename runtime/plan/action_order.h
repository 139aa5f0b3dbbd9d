// The order of the commands of consecutive actions. Actions follow each other without a barrier, and their commands
// share the arena; a command of one thread that touches bytes which an earlier action's command on another thread reads
// or writes must wait until that action's commands there are done. Derived from the bytes alone, by the executor to run
// and by the verifier to prove that no deadlock can come of it.
//
//   routine  forward.0 m0 (slot 0), forward.0 m1 (slot 1);  compute writes y, communication sends y
//     y in scratch: the compute thread, before m1's first command that writes y, waits for m0's communication
//     y in the slot: nothing to wait for
#pragma once
#include "runtime/plan/routine.h"
#include <array>
#include <cstdint>
#include <vector>

namespace cleave::runtime {

// Before its `item`-th command of an action (-1: before the inputs are filled), a lane waits until `lane` has done its
// commands of action number `action` of the routine.
struct ActionWait {
  int item = 0, lane = 0, action = 0;
};
// By lane, in the order of items.
using ActionWaits = std::array<std::vector<ActionWait>, numLanes>;

// One entry an action. The plan's fragments have passed verification.
std::vector<ActionWaits> orderActions(const plan::Plan &plan, const plan::Program &program,
                                      const plan::Routine &routine);

} // namespace cleave::runtime
