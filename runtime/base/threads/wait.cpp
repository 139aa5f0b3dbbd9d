#include "runtime/base/threads/wait.h"
#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cleave::runtime {
namespace {
// A turn takes some 60 ns. To wake a sleeper takes 30 to 80 us, if its core fell idle. Who yields while other programs
// want the core gets it back milliseconds later: so only those yield who wait for threads that need this core.
constexpr int shortSpin = 50, wakingSpin = 1000, longSpin = 8000, manyYields = 200;
std::atomic<int> spinTurns{shortSpin}, yieldTurns{0};

uint32_t *address(const std::atomic<uint32_t> &word) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  return reinterpret_cast<uint32_t *>(const_cast<std::atomic<uint32_t> *>(&word));
}

// True: it changed.
bool spinWhile(const std::atomic<uint32_t> &word, uint32_t seen, int turns) {
  for (int turn = turns; turn > 0; --turn) {
    if (word.load(std::memory_order_acquire) != seen) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  return false;
}

bool stayAwakeWhile(const std::atomic<uint32_t> &word, uint32_t seen) {
  const int yields = yieldTurns.load(std::memory_order_relaxed);
  if (yields == 0) return spinWhile(word, seen, spinTurns.load(std::memory_order_relaxed));
  for (int turn = 0; turn < yields; ++turn) {
    if (word.load(std::memory_order_acquire) != seen) return true;
    ::sched_yield();
  }
  return false;
}
} // namespace

void setThreadsOutnumberCores(bool outnumber) {
  spinTurns = outnumber ? shortSpin : longSpin;
  yieldTurns = outnumber ? manyYields : 0;
}

bool waitWhile(const std::atomic<uint32_t> &word, uint32_t seen, const AbortFlag &abort) {
  return spinWhile(word, seen, spinTurns.load(std::memory_order_relaxed)) || sleepWhile(word, seen, abort);
}

bool yieldWhile(const std::atomic<uint32_t> &word, uint32_t seen, const AbortFlag &abort) {
  return stayAwakeWhile(word, seen) || sleepWhile(word, seen, abort);
}

bool sleepWhile(const std::atomic<uint32_t> &word, uint32_t seen, const AbortFlag &abort) {
  while (word.load(std::memory_order_acquire) == seen) {
    if (abort.raised()) return false;
    timespec limit{0, 50'000'000}; // looks at the abort flag again
    ::syscall(SYS_futex, address(word), FUTEX_WAIT_PRIVATE, seen, &limit, nullptr, 0);
  }
  return true;
}

void wakeAll(const std::atomic<uint32_t> &word) {
  ::syscall(SYS_futex, address(word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

// Either the adding thread sees who sleeps, or who is about to sleep sees the number.
void Counter::add(uint32_t number) {
  word.fetch_add(number, std::memory_order_seq_cst);
  if (asleep.load(std::memory_order_seq_cst) > 0) wakeAll(word);
}

void Counter::waitWhile(uint32_t seen) {
  if (spinWhile(word, seen, wakingSpin)) return;
  asleep.fetch_add(1, std::memory_order_seq_cst);
  while (word.load(std::memory_order_seq_cst) == seen)
    ::syscall(SYS_futex, address(word), FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
  asleep.fetch_sub(1, std::memory_order_relaxed);
}

uint32_t Barrier::arrive(bool &isLast) {
  uint32_t ticket = generation.load(std::memory_order_acquire);
  isLast = arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == members;
  if (isLast) {
    arrived.store(0, std::memory_order_relaxed);
    generation.store(ticket + 1, std::memory_order_release);
  }
  return ticket;
}

// Either the ringing thread sees who sleeps, or who is about to sleep sees the ring.
void WakeSignal::notify() {
  rings.fetch_add(1, std::memory_order_seq_cst);
  if (asleep.load(std::memory_order_seq_cst) > 0)
    ::syscall(SYS_futex, address(rings), scope == Shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr,
              0);
}

bool WakeSignal::waitFor(uint32_t heard, std::chrono::microseconds most) {
  if (stayAwakeWhile(rings, heard)) return true;
  asleep.fetch_add(1, std::memory_order_seq_cst);
  const timespec limit{most.count() / 1'000'000, most.count() % 1'000'000 * 1000};
  if (rings.load(std::memory_order_seq_cst) == heard)
    ::syscall(SYS_futex, address(rings), scope == Shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, heard, &limit, nullptr, 0);
  asleep.fetch_sub(1, std::memory_order_seq_cst);
  return rings.load(std::memory_order_acquire) != heard;
}

bool WakeSignal::wait(uint32_t heard, const AbortFlag &abort) {
  if (stayAwakeWhile(rings, heard)) return true;
  asleep.fetch_add(1, std::memory_order_seq_cst);
  bool rung = sleepWhile(rings, heard, abort);
  asleep.fetch_sub(1, std::memory_order_seq_cst);
  return rung;
}

} // namespace cleave::runtime
