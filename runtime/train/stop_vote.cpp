#include "runtime/train/stop_vote.h"
#include <algorithm>

namespace cleave::runtime {

Result<int> StopVote::afterStep(double stepSeconds) {
  if (!asked) return 0;
  if (stepsLeft > 0) {
    --stepsLeft;
    return 0;
  }
  // The largest answer of all is a signal before it is a number of steps until the next vote.
  constexpr double betweenVotes = 0.25;
  const auto wait = static_cast<uint64_t>(std::clamp(betweenVotes / std::max(stepSeconds, 1e-6), 0.0, 1e6));
  CLEAVE_ASSIGN_OR_RETURN(uint64_t largest,
                          fabric.control().allReduceMax(static_cast<uint64_t>(asked()) << 32 | wait, limit));
  stepsLeft = static_cast<uint32_t>(largest & 0xffffffff);
  return static_cast<int>(largest >> 32);
}

} // namespace cleave::runtime
