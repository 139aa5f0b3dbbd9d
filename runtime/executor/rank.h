// One device's execution by threads that run its prepared routines: compute, communication, receives.
//
// The compute thread runs stream 0 in issue order, the communication thread the collectives and sends of the other
// streams, the receive thread their receives, ahead of the others as far as their memory is free. Within an action
// events order them, between actions action_order.h. A routine runs without coming back to the host, allocates nothing
// and takes no lock: threads meet at futex words.
#pragma once
#include "runtime/executor/prepared_program.h"
#include "runtime/executor/trace.h"
#include <functional>
#include <thread>

namespace cleave::runtime {

class Rank {
public:
  explicit Rank(PreparedProgram &prepared) : id(prepared.id), prepared(prepared) {}
  ~Rank();
  Rank(const Rank &) = delete;

  // Starts the threads; `failed` is called on a rank thread with the first error of this rank.
  void start(Trace *trace, std::function<void(int64_t rank, const Status &)> failed);
  void begin(const RankWork &work); // returns at once
  void finish();                    // waits until the work is done or has failed
  const plan::Program &program() const { return prepared.program(); }

  const int64_t id;

private:
  void laneThread(int lane);
  Status runRoutine(int lane);
  Status runAction(const PreparedAction &action, size_t number, int lane);
  Status beginAction(const PreparedAction &action, size_t number);
  Status waitFor(const ActionWait &wait);

  PreparedProgram &prepared;
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

} // namespace cleave::runtime
