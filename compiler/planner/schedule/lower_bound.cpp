#include "compiler/planner/schedule/simulate.h"
#include <algorithm>

namespace cleave::planner {

Result<double> makespanLowerBound(const std::string &kind, int ranks, int64_t microbatches,
                                  std::span<const StageTimes> stages) {
  Result<ScheduleShape> shape = scheduleShape(kind, ranks);
  if (!shape) return shape.status();
  if (microbatches < 1) return Status(ErrorKind::Usage, "a schedule has at least one microbatch");
  const auto times = [&](int stage) -> const StageTimes & { return stages[stages.size() == 1 ? 0 : stage]; };
  const auto apart = [&](int from, int to) { return shape->rankOfStage[from] != shape->rankOfStage[to]; };
  const bool split = shape->splitsBackward;

  struct Rank {
    bool seen = false;
    double head = 0;      // from 0 to the arrival of the first input
    double work = 0;      // all its actions
    double gradients = 0; // all but the weight gradients that may come after the last input gradient
    double tail = 0;      // what follows its last input gradient
  };
  std::vector<Rank> rows(ranks);
  // Of the stages so far: until the next one's first input is there, and what its input gradient still sets off.
  double forwards = 0, after = 0;
  for (int stage = 0; stage < shape->stages; ++stage) {
    const StageTimes &t = times(stage);
    Rank &rank = rows[shape->rankOfStage[stage]];
    if (!rank.seen) rank = {true, forwards, 0, 0, after};
    const double count = static_cast<double>(microbatches);
    rank.work += count * (t.forward + t.backwardInput + t.backwardWeight);
    rank.gradients += count * (t.forward + t.backwardInput + (split ? 0 : t.backwardWeight));
    const double backward = t.backwardInput + (split ? 0 : t.backwardWeight);
    const bool last = stage + 1 == shape->stages, crosses = !last && apart(stage, stage + 1);
    forwards += t.forward + (crosses ? t.sendForward : 0);
    after += backward + (crosses ? times(stage + 1).sendBackward : 0);
  }
  if (kind == "pipedream-2bw") { // steps run into each other: the busiest rank's work is all that counts
    double most = 0;
    for (const Rank &rank : rows) most = std::max(most, rank.work);
    return most;
  }
  double bound = forwards + after + (split ? times(0).backwardWeight : 0); // one microbatch, there and back
  for (const Rank &rank : rows)
    bound = std::max({bound, rank.head + rank.work, rank.head + rank.gradients + rank.tail});
  return bound;
}

} // namespace cleave::planner
