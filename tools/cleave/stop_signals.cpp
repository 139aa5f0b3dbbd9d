#include "tools/cleave/stop_signals.h"
#include "runtime/base/status.h"
#include <cstring>
#include <ctime>
#include <unistd.h>

namespace cleave::tool {
namespace {

constexpr int stopSignals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
volatile sig_atomic_t noted = 0, stepsHaveBegun = 0;
timespec when{};

void say(const char *text) { (void)!::write(STDERR_FILENO, text, std::strlen(text)); }

void note(int signal) {
  if (!stepsHaveBegun) {
    say("cleave: stopped by SIG"), say(sigabbrev_np(signal)), say(" before the first step\n");
    ::_exit(static_cast<int>(ErrorKind::Stopped));
  }
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

void onStopSignals(void (*handler)(int signal)) {
  struct sigaction action{}, before{};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  for (int signal : stopSignals) sigaddset(&action.sa_mask, signal); // one at a time
  for (int signal : stopSignals)
    if (signal != SIGHUP || sigaction(signal, nullptr, &before) != 0 || before.sa_handler != SIG_IGN)
      sigaction(signal, &action, nullptr);
}

void noteStopSignals() { onStopSignals(note); }

void beginSteps() { stepsHaveBegun = 1; }

int stopSignal() { return noted; }

} // namespace cleave::tool
