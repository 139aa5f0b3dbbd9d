// `cleave run --max-restarts N`: the rank runs in a child process, which is started again when the run fails.
//
//   return runWithRestarts(3, [&](int attempt) { options.resume |= attempt > 0; return run(options); });
//
// When one rank of several dies, the others end with status 4, so the parents of all ranks start the next attempt
// together; CLEAVE_ATTEMPT tells the new ranks apart from the old ones (runtime/engine/comm/launch.h).
#pragma once
#include <functional>

namespace cleave::tool {

// Calls `rank` in a child process, with 0, then, while it is killed by a signal or returns 4 (a run failed), with 1 up
// to `restarts`. Returns the last exit status; 4 for a death by signal. A signal to stop is
// passed on and ends the restarts.
int runWithRestarts(int restarts, const std::function<int(int attempt)> &rank);

} // namespace cleave::tool
