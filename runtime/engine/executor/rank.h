// One device's execution of its prepared routines, by lanes: compute (stream 0 in issue order), communication (the
// collectives and sends of the other streams), receives, ahead of the others as far as their memory is free. Within an
// action events order them, between actions action_order.h; a routine begins when all lanes have ended the one before.
//
// Where all devices are in this process (Fabric::signal) one thread issues the commands of all lanes, and waits when
// none can go on. Else each lane has a thread, which waits in its commands. A process' first rank computes on the
// thread that calls finish(), unless steps run into each other: a step of one device wakes nobody. A routine runs
// without coming back to the host, allocates nothing and takes no lock: threads meet at futex words.
//
//   rank.begin(step 0); rank.begin(step 1);   rank.finish() -> outputs of step 0, while step 1 runs
#pragma once
#include "runtime/engine/executor/prepared_program.h"
#include "runtime/engine/executor/trace.h"
#include "runtime/engine/health/liveness.h"
#include "runtime/engine/health/stragglers.h"
#include <atomic>
#include <functional>
#include <thread>

namespace cleave::runtime {

class Rank {
public:
  // `computesInFinish`: on the thread that calls it, instead of one of its own.
  Rank(PreparedProgram &prepared, bool computesInFinish)
      : id(prepared.id), prepared(prepared), computesInFinish(computesInFinish), signal(prepared.fabric.signal(id)) {}
  ~Rank();
  Rank(const Rank &) = delete;

  static constexpr size_t mostWaiting = 2; // routines that are begun and not finished
  // Starts the threads; `failed` is called on one that computes with an error of this rank and its routine's step.
  void start(Trace *trace, std::function<void(int64_t rank, int64_t step, const Status &)> failed);
  void begin(const RankWork &work); // returns at once
  // Waits until the routine that was begun first, of those not finished, is done or has failed. Its outputs, until the
  // next begin().
  std::span<const double> finish();
  const plan::Program &program() const { return prepared.program(); }
  // How it is now; for any thread, without the host.
  RankReport report() const;

  const int64_t id;

private:
  // A routine that was begun.
  struct Work : RankWork {
    uint32_t firstGeneration = 0; // of its first action; each action has the next
    std::vector<double> outputs;
    uint32_t generationOf(size_t action) const { return firstGeneration + 1 + static_cast<uint32_t>(action); }
  };
  void laneThread(int lane);
  void runNext(int lane, uint32_t count);
  const PreparedRoutine &routineOf(const Work &work) const {
    return prepared.routines[static_cast<size_t>(work.routine)];
  }
  Status issueRoutine(const Work &work);
  Status advance(const Work &work, int lane, bool &moved);
  bool hasHappened(const Event &event, uint32_t generation, int lane);
  // Nobody sleeps where lanes share a thread.
  void happens(Event &event, uint32_t generation) const { signal ? event.mark(generation) : event.set(generation); }
  Result<bool> execute(const Work &work, int lane, const PreparedAction &action, LaneItem &item);
  void note(const Work &work, const PreparedAction &action, int lane, const LaneItem &item);
  void awaitLane(int lane, uint32_t count);
  // For report(): how long this rank works on its own, over a window of steps.
  template <typename Wait> auto timed(int lane, bool waits, Wait wait);
  void countStep(const Work &work);

  PreparedProgram &prepared;
  const bool computesInFinish;
  WakeSignal *const signal;            // null: each lane has a thread
  std::vector<int> used;               // lanes, compute first
  std::array<Work, mostWaiting> works; // by number of the routine, modulo
  uint32_t finished = 0;
  uint32_t nextGeneration = 0;
  std::function<void(int64_t, int64_t, const Status &)> failed;
  AbortFlag never; // for waits that no abort ends
  // Counters of work begun and done, by lane, and the generation of the last action each lane is done with.
  alignas(64) std::atomic<uint32_t> begun{0};
  struct alignas(64) Lane {
    std::atomic<uint32_t> done{0};
    Event progress;
    std::atomic<const LaneItem *> current{nullptr}; // what it does, or waits for in an exchange
    std::atomic<const PreparedFragment *> fragment{nullptr};
    std::atomic<int64_t> commands{0}; // done
    LaneCursor cursor;
    TraceLane *trace = nullptr;
    // Nanoseconds, where it is traced: the action; the command that is tried, -1: none.
    int64_t actionBegan = 0, commandBegan = -1;
    bool isUsed = false; // has a thread, or is the compute lane
    std::thread thread;
  };
  std::array<Lane, numLanes> lanes;
  // The compute lane's, for others to read.
  std::atomic<RankReport::State> state{RankReport::Starting};
  std::atomic<int64_t> stepNow{0}, window{0};
  std::atomic<double> ownSeconds{0};                  // a step, of the last window
  int64_t stepsSeen = 0, windowBegan = 0, waited = 0; // waited: nanoseconds for others since the window began
  std::atomic<bool> stopping{false};
};

} // namespace cleave::runtime
