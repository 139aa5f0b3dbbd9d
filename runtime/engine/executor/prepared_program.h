// A device's program, ready to run: every command prepared, with its events, for each fragment in each slot, and the
// routines as actions of them. Threads (rank.h) or streams (stream_engine.h) drive it.
//
//   PreparedProgram program(id, plan, device, fabric);
//   Status s = program.prepare(mesh, orders);
//   program.routines[0].actions[0].fragment->lanes[computeLane][0].command->run();
#pragma once
#include "runtime/base/strided_copy.h"
#include "runtime/engine/comm/communicator.h"
#include "runtime/engine/device/device.h"
#include "runtime/engine/executor/traffic.h"
#include "runtime/plan/lane_cursor.h"
#include <array>
#include <deque>
#include <map>
#include <span>

namespace cleave::runtime {

struct LaneItem {
  Prepared command;
  const plan::Command *source = nullptr;
  std::vector<Event *> waits; // recorded by other lanes
  Event *record = nullptr;
  Traffic *traffic = nullptr; // of this command's kind; null: it sends nothing
  int64_t sentBytes = 0;
};

// A fragment in one slot.
struct PreparedFragment {
  const plan::Fragment *source = nullptr;
  std::array<std::vector<LaneItem>, numLanes> lanes;
  std::deque<Event> events;
  struct Input {
    StridedCopy slice;                  // of the global microbatch
    int64_t sourceOffset, targetOffset; // bytes
  };
  std::vector<Input> inputs; // in the order of Fragment.inputs
};

struct PreparedAction {
  PreparedFragment *fragment = nullptr;
  const plan::Action *source = nullptr;
  ActionWaits waits;
  std::vector<size_t> inputs; // of Fragment.inputs, their numbers in inputsOf(routine)
  std::vector<int64_t> given; // where the host's scalars, then the inputs lie in the arena
};
struct PreparedRoutine { // a chain for LaneCursor
  std::vector<PreparedAction> actions;
  size_t inputs = 0; // a microbatch

  size_t size() const { return actions.size(); }
  const std::vector<ActionWait> &waits(size_t action, int lane) const {
    return actions[action].waits[static_cast<size_t>(lane)];
  }
  const std::vector<LaneItem> &items(size_t action, int lane) const {
    return actions[action].fragment->lanes[static_cast<size_t>(lane)];
  }
};

// A device's next work. The executor sets it before it starts.
struct RankWork {
  int routine = 0;                          // index into Program.routines
  int64_t step = 0, skipped = 0;            // steps before this one; those of them that changed nothing
  const std::byte *const *inputs = nullptr; // of all microbatches: those of inputsOf(routine) for each
  const std::byte *const *next = nullptr;   // the same of the next step; null: no action is ahead

  int64_t stepOf(const plan::Action &action) const { return step + action.ahead(); }
  const std::byte *const *inputsOf(const plan::Action &action) const { return action.ahead() ? next : inputs; }
};

class PreparedProgram {
public:
  PreparedProgram(int64_t id, const plan::Plan &plan, Device &device, Fabric &fabric)
      : id(id), plan(plan), device(device), fabric(fabric) {}
  PreparedProgram(const PreparedProgram &) = delete;

  // Loads constants and checks commands. The device has its arena and the fabric its routes. `orders`: of the program's
  // routines.
  Status prepare(const dist::Mesh &mesh, std::span<const std::vector<ActionWaits>> orders);
  const plan::Program &program() const { return *source; }
  // Writes what the host gives before an action of a routine, for its microbatch: its scalars and inputs, each to
  // its offset (in the order of PreparedAction.given) from `base`, null on a device without memory. One thread calls
  // it.
  Status fillInputs(const PreparedRoutine &routine, size_t action, const RankWork &work, std::byte *base,
                    std::span<const int64_t> offsets);
  std::vector<Traffic> traffic() const; // sent so far; only between runs
  // An output of a routine's last action.
  struct Output {
    int64_t place = 0, bytes = 0;
    plan::DType dtype = plan::F32;

    void appendTo(std::vector<double> &values, const std::byte *from) const; // its elements
  };
  std::vector<Output> outputsOf(int routine) const; // in the order of Fragment.outputs
  // The elements of these, one after the other. Call it when the action's commands are done.
  Status readOutputs(int routine, std::vector<double> &values) const;
  // Outputs of one element by their names; those of several in `tensors`.
  std::map<std::string, double> named(int routine, std::span<const double> values,
                                      std::map<std::string, std::vector<double>> &tensors) const;

  const int64_t id;
  const plan::Plan &plan;
  Device &device;
  Fabric &fabric;
  std::map<std::pair<int32_t, int32_t>, PreparedFragment> fragments; // by fragment and slot
  std::vector<PreparedRoutine> routines;
  std::map<std::string, std::vector<std::string>> warnings; // of prepared commands: their names, by what they say

private:
  Status prepareFragment(const plan::Fragment &fragment, int32_t slot, const dist::Mesh &mesh, PreparedFragment &out);
  Status loadConstants(const plan::Fragment &fragment, const dist::Mesh &mesh);
  const plan::Action *lastAction(int routine) const; // null: it has none
  Traffic &trafficOf(const plan::Fragment &fragment, const plan::Command &command);

  const plan::Program *source = nullptr;
  std::array<std::deque<Traffic>, numLanes> sent; // by lane, each counted by one thread
  std::string scalarBytes;
};

// The error with the command it belongs to.
Status inCommand(const plan::Command &command, const Status &status);

} // namespace cleave::runtime
