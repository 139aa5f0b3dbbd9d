#include "tools/cleave/stop_signals.h"
#include <ctime>

namespace cleave::tool {
namespace {

volatile sig_atomic_t noted = 0;
timespec when{};

void note(int signal) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (noted == 0) {
    when = now;
    noted = signal;
    return;
  }
  const double since = double(now.tv_sec - when.tv_sec) + double(now.tv_nsec - when.tv_nsec) / 1e9;
  if (since < 0.5) return;
  std::signal(signal, SIG_DFL);
  raise(signal);
}

} // namespace

void noteStopSignals() {
  struct sigaction action{};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  for (int signal : stopSignals) sigaddset(&action.sa_mask, signal); // one at a time
  for (int signal : stopSignals) sigaction(signal, &action, nullptr);
}

int stopSignal() { return noted; }

} // namespace cleave::tool
