// One device's execution: its prepared routines and the threads that run them: compute, communication, receives.
//
// The compute thread runs stream 0 in issue order, the communication thread the collectives and sends of the other
// streams, the receive thread their receives, ahead of the others as far as their memory is free. Within an action
// events order them, between actions action_order.h. A routine runs without coming back to the host, allocates nothing
// and takes no lock: threads meet at futex words.
#pragma once
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/device/strided_copy.h"
#include "runtime/executor/trace.h"
#include "runtime/executor/traffic.h"
#include "runtime/plan/action_order.h"
#include <deque>
#include <functional>
#include <thread>

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
};
struct PreparedRoutine {
  std::vector<PreparedAction> actions;
  size_t inputs = 0; // a microbatch
};

// What a rank does next. Set by the executor before it wakes the ranks.
struct RankWork {
  int routine = 0; // index into Program.routines
  int64_t step = 0, skipped = 0; // steps before this one; those of them that changed nothing
  const std::byte *const *inputs = nullptr; // of all microbatches: those of inputsOf(routine) for each
};

class Rank {
public:
  Rank(int64_t id, const plan::Plan &plan, std::unique_ptr<Device> device, Fabric &fabric)
      : id(id), device(std::move(device)), plan(plan), fabric(fabric) {}
  ~Rank();
  Rank(const Rank &) = delete;

  // Prepares all routines of the device's program: constants are loaded, commands checked. The device has its arena and
  // the fabric its routes. `orders`: of the program's routines.
  Status prepare(const dist::Mesh &mesh, std::span<const std::vector<ActionWaits>> orders);
  // Starts the threads; `failed` is called on a rank thread with the first error of this rank.
  void start(Trace *trace, std::function<void(int64_t rank, const Status &)> failed);
  void begin(const RankWork &work); // returns at once
  void finish();                    // waits until the work is done or has failed
  const plan::Program &program() const { return *source; }
  std::vector<Traffic> traffic() const; // sent so far; only between runs

  const int64_t id;
  std::unique_ptr<Device> device;

private:
  Status prepareFragment(const plan::Fragment &fragment, int32_t slot, const dist::Mesh &mesh, PreparedFragment &out);
  Status loadConstants(const plan::Fragment &fragment, const dist::Mesh &mesh);
  Traffic &trafficOf(const plan::Fragment &fragment, const plan::Command &command);
  void laneThread(int lane);
  Status runRoutine(int lane);
  Status runAction(const PreparedAction &action, size_t number, int lane);
  Status beginAction(const PreparedAction &action, size_t number);
  Status waitFor(const ActionWait &wait);

  const plan::Plan &plan;
  const plan::Program *source = nullptr;
  Fabric &fabric;
  std::map<std::pair<int32_t, int32_t>, PreparedFragment> fragments; // by fragment and slot
  std::vector<PreparedRoutine> routines;
  std::array<std::deque<Traffic>, numLanes> sent; // each counted by its lane's thread alone
  RankWork work;
  uint32_t firstGeneration = 0; // of the current routine's first action; each action has the next
  std::string scalarBytes;
  std::function<void(int64_t, const Status &)> failed;
  AbortFlag never; // for waits that no abort ends
  // Counters of work begun and done, by lane, and the generation of the last action each lane is done with.
  alignas(64) std::atomic<uint32_t> begun{0};
  struct alignas(64) Lane {
    std::atomic<uint32_t> done{0};
    Event progress;
    TraceLane *trace = nullptr;
    std::thread thread;
  };
  std::array<Lane, numLanes> lanes;
  std::atomic<bool> stopping{false};
};

// "contract", "all_reduce", ...
std::string kindName(const plan::Command &command);

} // namespace cleave::runtime
