// What may run next on a lane of a device, and what it waits for. A cursor stands on one lane of a chain of actions and
// says what is next there; whoever drives the lane does it, or waits, or comes back later, and says when it is done.
//
//   LaneCursor at(computeLane);
//   for (LaneStep next; (next = at.next(chain)) != LaneStep::End; at.pass(next))
//     if (next == LaneStep::Command) run(chain.items(at.action(), computeLane)[at.item()]);
//
//   next of the compute lane in an action of two commands, the second of which waits for a receive's event:
//     AwaitLane   until the communication lane is done with an earlier action, whose bytes the inputs overwrite
//     Inputs      Command 0      AwaitEvent 0 of command 1      Command 1      EndAction
//
// A chain has size() actions, and for an action and a lane waits(), its ActionWaits, and items(), its commands, each
// with its `waits` for events. The cursor knows nothing else of them.
#pragma once
#include "runtime/plan/action_order.h"
#include "runtime/plan/routine.h"

namespace cleave::runtime {

enum class LaneStep {
  AwaitLane,  // until another lane is done with an earlier action: awaited()
  Inputs,     // of the action, to be filled; on the compute lane only
  AwaitEvent, // until a command of another lane is done in the same action: number event() of the item's waits
  Command,    // number item()
  EndAction,  // its commands on this lane are done
  End,        // of the chain
};

class LaneCursor {
public:
  explicit LaneCursor(int lane = computeLane) : lane(lane), at(firstItem()) {}
  size_t action() const { return number; }
  size_t item() const { return static_cast<size_t>(at < 0 ? 0 : at); }
  size_t event() const { return eventsPassed; }

  template <typename Chain> LaneStep next(const Chain &chain) const {
    if (number == chain.size()) return LaneStep::End;
    const std::vector<ActionWait> &waits = chain.waits(number, lane);
    if (waitsPassed < waits.size() && waits[waitsPassed].item <= at) return LaneStep::AwaitLane;
    if (at < 0) return LaneStep::Inputs;
    const auto &items = chain.items(number, lane);
    if (item() == items.size()) return LaneStep::EndAction;
    return eventsPassed < items[item()].waits.size() ? LaneStep::AwaitEvent : LaneStep::Command;
  }
  template <typename Chain> const ActionWait &awaited(const Chain &chain) const {
    return chain.waits(number, lane)[waitsPassed];
  }
  // `done`: what next() gave.
  void pass(LaneStep done) {
    if (done == LaneStep::AwaitLane)
      ++waitsPassed;
    else if (done == LaneStep::AwaitEvent)
      ++eventsPassed;
    else if (done == LaneStep::EndAction)
      ++number, at = firstItem(), waitsPassed = 0;
    else
      ++at, eventsPassed = 0;
  }
  // Whether the lane is done with an action, or with an item of it.
  bool isPast(int action) const { return number > static_cast<size_t>(action); }
  bool isPast(size_t action, int item) const { return number > action || (number == action && at > item); }

private:
  int firstItem() const { return lane == computeLane ? -1 : 0; } // -1: the inputs

  int lane;
  size_t number = 0; // of the action
  int at;            // item
  size_t waitsPassed = 0, eventsPassed = 0;
};

// A command of a lane: its number in the fragment, and the commands of other lanes whose events it waits for.
struct LaneCommand {
  int command;
  std::vector<std::pair<int, int>> waits; // lane and item there
};
using LaneCommands = std::array<std::vector<LaneCommand>, numLanes>;
// The fragment has passed verification: events are recorded before they are waited for.
LaneCommands laneCommandsOf(const plan::Fragment &fragment);

} // namespace cleave::runtime
