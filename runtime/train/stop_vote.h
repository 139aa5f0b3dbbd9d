// Whether a run is to stop, with the same answer after the same step on all processes: any of them may have been asked.
//
//   StopVote vote(fabric, [] { return signalGiven(); }, 600);
//   Result<int> signal = vote.afterStep(0.25);      // 15: stop now; 0: go on
//
// Processes ask each other after the first steps and then about four times a second, whatever a step lasts: log2(N)
// messages of eight bytes each time.
#pragma once
#include "runtime/engine/comm/communicator.h"
#include <functional>

namespace cleave::runtime {

class StopVote {
public:
  // `asked`: the signal that this process was given, 1 to 63, or 0. `limit`: after which a silent process is given
  // up.
  StopVote(Fabric &fabric, std::function<int()> asked, TimeLimit limit)
      : fabric(fabric), asked(std::move(asked)), limit(limit) {}
  // The signal that a process was given, or 0. Error: a process does not answer.
  Result<int> afterStep(double stepSeconds);

private:
  Fabric &fabric;
  const std::function<int()> asked;
  const TimeLimit limit;
  uint32_t stepsLeft = 0; // until the next vote
};

} // namespace cleave::runtime
