// One device's execution: its prepared fragments and the two threads that run them, compute and communication.
//
// The compute thread runs stream 0 in issue order, the communication thread streams 1.. in issue order; events order
// them. A step allocates nothing and takes no lock: threads meet at futex words.
#pragma once
#include "runtime/comm/communicator.h"
#include "runtime/device/device.h"
#include "runtime/device/strided_copy.h"
#include "runtime/executor/trace.h"
#include <deque>
#include <functional>
#include <thread>

namespace cleave::runtime {

struct LaneItem {
  Prepared command;
  const plan::Command *source = nullptr;
  std::vector<Event *> waits; // recorded by the other lane
  Event *record = nullptr;
};

struct PreparedFragment {
  std::vector<LaneItem> lanes[2];
  std::deque<Event> events;
  struct Input {
    StridedCopy slice;                  // of the global microbatch
    int64_t sourceOffset, targetOffset; // bytes
  };
  std::vector<Input> inputs; // in the order of Fragment.inputs
  uint32_t generation = 0;
};

// What a rank does next. Set by the executor before it wakes the ranks.
struct RankWork {
  int fragment = 0;
  int64_t step = 0;
  const std::byte *const *inputs = nullptr;
};

class Rank {
public:
  Rank(int64_t id, std::unique_ptr<Device> device, Fabric &fabric)
      : id(id), device(std::move(device)), fabric(fabric) {}
  ~Rank();
  Rank(const Rank &) = delete;

  // Prepares all fragments of the program: constants are loaded, commands checked. The device has its arena.
  Status prepare(const plan::Program &program, const dist::Mesh &mesh);
  // Starts the threads; `failed` is called on a rank thread with the first error of this rank.
  void start(Trace *trace, std::function<void(int64_t rank, const Status &)> failed);
  void begin(const RankWork &work); // returns at once
  void finish();                    // waits until the work is done or has failed

  const int64_t id;
  std::unique_ptr<Device> device;

private:
  Status prepareFragment(const plan::Fragment &fragment, const dist::Mesh &mesh, PreparedFragment &out);
  void computeThread();
  void communicationThread();
  Status runLane(PreparedFragment &fragment, int lane);
  void report(const Status &status) { failed(id, status); }

  Fabric &fabric;
  std::deque<PreparedFragment> fragments;
  RankWork work;
  std::function<void(int64_t, const Status &)> failed;
  AbortFlag never; // for waits that no abort ends
  // Counters of work begun and done, by lane.
  alignas(64) std::atomic<uint32_t> begun{0};
  alignas(64) std::atomic<uint32_t> done{0};
  alignas(64) std::atomic<uint32_t> communicationBegun{0};
  alignas(64) std::atomic<uint32_t> communicationDone{0};
  std::atomic<bool> stopping{false};
  TraceLane *traces[2] = {nullptr, nullptr};
  std::thread threads[2];
};

// "contract", "all_reduce", ...
std::string kindName(const plan::Command &command);

} // namespace cleave::runtime
