// Waiting between threads of one process: spin a little, then sleep in the kernel; an abort wakes everybody.
//
//   AbortFlag abort;  Barrier barrier(4, abort);
//   if (!barrier.arriveAndWait()) return aborted;    // somebody called abort.raise()
#pragma once
#include <atomic>
#include <cstdint>

namespace cleave::runtime {

class AbortFlag {
public:
  void raise() { flag.store(true, std::memory_order_release); }
  void clear() { flag.store(false, std::memory_order_release); }
  bool raised() const { return flag.load(std::memory_order_acquire); }

private:
  std::atomic<bool> flag{false};
};

// Returns when `word` no longer is `seen` (true) or the run is aborted (false, within 50 ms).
bool waitWhile(const std::atomic<uint32_t> &word, uint32_t seen, const AbortFlag &abort);
// The same, asleep from the start: for long waits, and where the thread that is waited for may need this one's core.
bool sleepWhile(const std::atomic<uint32_t> &word, uint32_t seen, const AbortFlag &abort);
void wakeAll(const std::atomic<uint32_t> &word);
// How long waits spin before they sleep: few turns when threads outnumber the cores.
void setSpinTurns(int turns);

class Barrier {
public:
  Barrier(int members, const AbortFlag &abort) : members(static_cast<uint32_t>(members)), abort(abort) {}
  // False: the run was aborted while waiting.
  bool arriveAndWait();

private:
  const uint32_t members;
  const AbortFlag &abort;
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> generation{0};
};

// A flag that happens once an action: events between the threads of a device. Generations only grow (and may wrap): who
// waits for one may find a later one, when the recording thread is an action ahead.
class Event {
public:
  void set(uint32_t generation) {
    word.store(generation, std::memory_order_release);
    wakeAll(word);
  }
  // False: aborted.
  bool wait(uint32_t generation, const AbortFlag &abort) const {
    for (uint32_t seen; static_cast<int32_t>((seen = word.load(std::memory_order_acquire)) - generation) < 0;)
      if (!waitWhile(word, seen, abort)) return false;
    return true;
  }

private:
  std::atomic<uint32_t> word{0};
};

} // namespace cleave::runtime
