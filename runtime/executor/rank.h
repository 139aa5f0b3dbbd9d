// One device's execution by threads, one a lane, that run its prepared routines: compute, communication, receives.
//
// The compute thread runs stream 0 in issue order, the communication thread the collectives and sends of the other
// streams, the receive thread their receives, ahead of the others as far as their memory is free. A process' first rank
// computes on the thread that calls finish(), unless steps run into each other: a step of one device wakes nobody.
// Within an action events order them, between actions action_order.h; a routine begins when all threads have ended the
// one before. A routine runs without coming back to the host, allocates nothing and takes no lock: threads meet at
// futex words.
//
//   rank.begin(step 0); rank.begin(step 1);   rank.finish() -> outputs of step 0, while step 1 runs
#pragma once
#include "runtime/executor/prepared_program.h"
#include "runtime/executor/trace.h"
#include <functional>
#include <thread>

namespace cleave::runtime {

class Rank {
public:
  // `computesInFinish`: on the thread that calls it, instead of one of its own.
  Rank(PreparedProgram &prepared, bool computesInFinish)
      : id(prepared.id), prepared(prepared), computesInFinish(computesInFinish) {}
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

  const int64_t id;

private:
  // A routine that was begun.
  struct Work : RankWork {
    uint32_t firstGeneration = 0; // of its first action; each action has the next
    std::vector<double> outputs;
  };
  void laneThread(int lane);
  void runNext(int lane, uint32_t count);
  Status runRoutine(const Work &work, int lane);
  Status runAction(const Work &work, const PreparedAction &action, size_t number, int lane);
  Status beginAction(const Work &work, const PreparedAction &action, size_t number);
  Status waitFor(const Work &work, const ActionWait &wait);
  void awaitLane(int lane, uint32_t count);

  PreparedProgram &prepared;
  const bool computesInFinish;
  std::array<Work, mostWaiting> works; // by number of the routine, modulo
  uint32_t finished = 0;
  uint32_t nextGeneration = 0;
  std::string scalarBytes;
  std::function<void(int64_t, int64_t, const Status &)> failed;
  AbortFlag never; // for waits that no abort ends
  // Counters of work begun and done, by lane, and the generation of the last action each lane is done with.
  alignas(64) std::atomic<uint32_t> begun{0};
  struct alignas(64) Lane {
    std::atomic<uint32_t> done{0};
    Event progress;
    TraceLane *trace = nullptr;
    bool isUsed = false;
    std::thread thread;
  };
  std::array<Lane, numLanes> lanes;
  std::atomic<bool> stopping{false};
};

} // namespace cleave::runtime
