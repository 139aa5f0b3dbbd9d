// Signals that ask a run to end: SIGTERM, SIGINT, SIGHUP and SIGUSR1 (Slurm's). Before the first step they end the
// process at once; then one is noted, so that the run ends after its step. A second one, half a second later or more,
// ends the process at once: launchers send one signal in several ways.
#pragma once
#include <csignal>

namespace cleave::tool {

// Calls `handler` for each of them, but not for a SIGHUP that is ignored (nohup).
void onStopSignals(void (*handler)(int signal));
void noteStopSignals();
void beginSteps();
int stopSignal(); // the first that was noted; 0: none

} // namespace cleave::tool
