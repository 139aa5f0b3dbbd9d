// Waiting between threads of one process: spin a little, then sleep in the kernel; an abort wakes everybody.
//
//   AbortFlag abort;  std::atomic<uint32_t> word{0};
//   if (!waitWhile(word, 0, abort)) return aborted;    // somebody called abort.raise()
#pragma once
#include "runtime/base/time_limits.h"
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <utility>

namespace cleave::runtime {

class AbortFlag {
public:
  void raise() { flag.store(true, std::memory_order_release); }
  void clear() { flag.store(false, std::memory_order_release); }
  bool raised() const { return flag.load(std::memory_order_acquire); }

private:
  std::atomic<bool> flag{false};
};

// Seconds in which this process ran, for one who asks several times a second: where two questions lie further apart,
// the process was suspended between them (SIGSTOP).
class AwakeTime {
public:
  double seconds() {
    const Clock::time_point now = Clock::now();
    passed += std::min(std::chrono::duration<double>(now - std::exchange(last, now)).count(), longestGap);
    return passed;
  }

private:
  using Clock = std::chrono::steady_clock;
  static constexpr double longestGap = 0.25;
  Clock::time_point last = Clock::now();
  double passed = 0;
};

// How long others are waited for: until the run is aborted, and at most so many seconds in which this process is awake.
class Deadline {
public:
  explicit Deadline(const AbortFlag &abort, double seconds = std::numeric_limits<double>::infinity())
      : Deadline(abort, TimeLimit{seconds, nullptr}) {}
  Deadline(const AbortFlag &abort, TimeLimit limit) : limit(limit), abort(abort) {}
  bool isAborted() const { return abort.raised(); }
  bool isOver() const { return abort.raised() || awake.seconds() > limit.seconds; }
  const TimeLimit limit;

private:
  const AbortFlag &abort;
  mutable AwakeTime awake;
};

// Returns when `word` no longer is `seen` (true) or the run is aborted (false, within 50 ms).
bool waitWhile(const std::atomic<uint32_t> &word, uint32_t seen, const AbortFlag &abort);
// The same, for a thread that computes: where threads outnumber the cores it lets others have its own instead of
// spinning.
bool yieldWhile(const std::atomic<uint32_t> &word, uint32_t seen, const AbortFlag &abort);
// The same, asleep from the start: for long waits, and where the thread that is waited for may need this one's core.
bool sleepWhile(const std::atomic<uint32_t> &word, uint32_t seen, const AbortFlag &abort);
void wakeAll(const std::atomic<uint32_t> &word);

// A number that others wait to see changed. They spin as long as it takes to wake a sleeper, then sleep: a thread that
// has its core for itself answers at once, and one that shares it does not keep others from theirs.
class Counter {
public:
  uint32_t value() const { return word.load(std::memory_order_acquire); }
  // Nobody waits.
  void reset() { word.store(0, std::memory_order_relaxed); }
  void add(uint32_t number);
  void waitWhile(uint32_t seen);

private:
  std::atomic<uint32_t> word{0}, asleep{0};
};

// Before waits sleep: where threads are no more than the cores they spin, half a millisecond; else shortly, or they
// yield.
void setThreadsOutnumberCores(bool outnumber);

// Where members of a group meet, again and again. It waits for nobody: a member asks whether it may pass.
class Barrier {
public:
  explicit Barrier(int members) : members(static_cast<uint32_t>(members)) {}
  // This member is here. Gives what passed() takes; `isLast`: all are here now.
  uint32_t arrive(bool &isLast);
  bool passed(uint32_t ticket) const { return generation.load(std::memory_order_acquire) != ticket; }

private:
  const uint32_t members;
  alignas(64) std::atomic<uint32_t> arrived{0};
  alignas(64) std::atomic<uint32_t> generation{0};
};

// Tells a thread that computes, and waits for any of several things, that one of them may have happened.
//
//   uint32_t heard = signal.epoch();
//   if (!tryEverything() && !signal.wait(heard, abort)) return aborted;
class WakeSignal {
public:
  enum Scope : uint32_t { Threads, Shared }; // shared: it lies in memory of several processes
  WakeSignal() = default;
  explicit WakeSignal(Scope scope) : scope(scope) {}
  uint32_t epoch() const { return rings.load(std::memory_order_acquire); }
  void notify();
  // Until it has rung since epoch(). False: aborted.
  bool wait(uint32_t heard, const AbortFlag &abort);
  // The same, at most so long. False: it has not rung.
  bool waitFor(uint32_t heard, std::chrono::microseconds most);

private:
  alignas(64) std::atomic<uint32_t> rings{0};
  std::atomic<uint32_t> asleep{0};
  const Scope scope = Threads;
};

// A flag that happens once an action: events between the lanes of a device. Generations only grow (and may wrap): who
// waits for one may find a later one, when the recording lane is an action ahead.
class Event {
public:
  // `mark` where lanes share a thread: nobody sleeps.
  void mark(uint32_t generation) { word.store(generation, std::memory_order_release); }
  void set(uint32_t generation) {
    mark(generation);
    wakeAll(word);
  }
  bool has(uint32_t generation) const { return isThere(word.load(std::memory_order_acquire), generation); }
  // False: aborted.
  bool wait(uint32_t generation, const AbortFlag &abort) const {
    for (uint32_t seen; !isThere(seen = word.load(std::memory_order_acquire), generation);)
      if (!waitWhile(word, seen, abort)) return false;
    return true;
  }

private:
  static bool isThere(uint32_t seen, uint32_t generation) { return static_cast<int32_t>(seen - generation) >= 0; }
  std::atomic<uint32_t> word{0};
};

} // namespace cleave::runtime
