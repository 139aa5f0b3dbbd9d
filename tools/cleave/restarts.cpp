#include "tools/cleave/restarts.h"
#include "runtime/base/status.h"
#include "tools/cleave/stop_signals.h"
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fmt/core.h>
#include <string>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace cleave::tool {
namespace {

constexpr int runFailed = static_cast<int>(ErrorKind::RunFailed);
volatile sig_atomic_t child = 0, stopped = 0;

void replicate(int signal) {
  stopped = 1;
  if (child > 0) ::kill(child, signal);
}

[[noreturn]] void runChild(int attempt, const std::function<int(int)> &rank, pid_t parent) {
  noteStopSignals();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL); // no rank outlives the process that the launcher knows
  if (::getppid() != parent) ::_exit(runFailed);
  ::setenv("CLEAVE_ATTEMPT", std::to_string(attempt).c_str(), 1);
  int status = rank(attempt);
  std::fflush(nullptr);
  std::exit(status);
}

} // namespace

int runWithRestarts(int restarts, const std::function<int(int attempt)> &rank) {
  onStopSignals(replicate);
  pid_t parent = ::getpid();
  for (int attempt = 0;; ++attempt) {
    std::fflush(nullptr); // else the child would write it again
    pid_t started = ::fork();
    if (started == 0) runChild(attempt, rank, parent);
    if (started < 0) {
      fmt::print(stderr, "cleave: error: no process can be started: {}\n", std::strerror(errno));
      return runFailed;
    }
    child = started;
    int status = 0;
    while (::waitpid(started, &status, 0) < 0 && errno == EINTR) {
    }
    child = 0;
    std::string how = WIFSIGNALED(status) ? fmt::format("was killed by signal {}", WTERMSIG(status))
                                          : fmt::format("ended with status {}", WEXITSTATUS(status));
    int result = WIFSIGNALED(status) ? runFailed : WEXITSTATUS(status);
    if (WIFSIGNALED(status)) fmt::print(stderr, "cleave: error: the run {}\n", how);
    if (result != runFailed || stopped || attempt == restarts) return result;
    fmt::print(stderr, "cleave: the run {}; restart {} of {}, from the newest snapshot\n", how, attempt + 1, restarts);
  }
}

} // namespace cleave::tool
