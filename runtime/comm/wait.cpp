#include "runtime/comm/wait.h"
#include <climits>
#include <ctime>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cleave::runtime {
namespace {
std::atomic<int> spinTurns{200};

uint32_t *address(const std::atomic<uint32_t> &word) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  return reinterpret_cast<uint32_t *>(const_cast<std::atomic<uint32_t> *>(&word));
}
} // namespace

void setSpinTurns(int turns) { spinTurns = turns; }

bool waitWhile(const std::atomic<uint32_t> &word, uint32_t seen, const AbortFlag &abort) {
  for (int turn = spinTurns.load(std::memory_order_relaxed); turn > 0; --turn) {
    if (word.load(std::memory_order_acquire) != seen) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  return sleepWhile(word, seen, abort);
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

bool Barrier::arriveAndWait() {
  if (members == 1) return true;
  uint32_t seen = generation.load(std::memory_order_acquire);
  if (arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == members) {
    arrived.store(0, std::memory_order_relaxed);
    generation.store(seen + 1, std::memory_order_release);
    wakeAll(generation);
    return !abort.raised();
  }
  return waitWhile(generation, seen, abort);
}

} // namespace cleave::runtime
