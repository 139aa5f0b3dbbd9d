// Signals that ask a run to end: SIGTERM, SIGINT and SIGUSR1 (Slurm's) are noted, so that the run ends after its step.
// A second one, half a second later or more, ends the process at once: launchers send one signal in several ways.
#pragma once
#include <csignal>

namespace cleave::tool {

constexpr int stopSignals[] = {SIGTERM, SIGINT, SIGUSR1};

void noteStopSignals();
int stopSignal(); // the first that was noted; 0: none

} // namespace cleave::tool
