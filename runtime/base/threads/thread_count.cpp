#include "runtime/base/threads/thread_count.h"
#include "runtime/base/control_groups.h"
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <sched.h>
#include <unistd.h>

namespace cleave::runtime {
namespace {

// A positive number at the text's beginning; 0: none.
int firstNumber(const char *text) {
  int number = 0;
  if (text) (void)std::from_chars(text, text + std::strlen(text), number);
  return std::max(number, 0);
}

} // namespace

int boundCores() {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

int availableCores() {
  const int quota = coresOfQuota();
  return quota > 0 ? std::min(boundCores(), quota) : boundCores();
}

int threadsOfProcess() {
  static const int told = firstNumber(std::getenv("OMP_NUM_THREADS"));
  static const int cores = availableCores();
  return told > 0 ? told : cores;
}

int threadsOfRank(int64_t ranks, int64_t processes) {
  const int64_t told = firstNumber(std::getenv("OMP_NUM_THREADS"));
  const int64_t threads = told > 0 ? told : availableCores() / std::max<int64_t>(1, processes);
  return static_cast<int>(std::max<int64_t>(1, threads / std::max<int64_t>(1, ranks)));
}

} // namespace cleave::runtime
