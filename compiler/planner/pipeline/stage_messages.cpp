#include "compiler/planner/pipeline/stage_messages.h"
#include "compiler/planner/infinity.h"
#include <algorithm>
#include <array>

namespace cleave::planner {
namespace {

// Seconds of a microbatch's message over the border before a unit, from a stage to the one after or before it. None
// where one rank has both.
double messageSeconds(const StageProblem &problem, int from, int to, int unit) {
  const int sender = problem.rankOf(from), receiver = problem.rankOf(to);
  if (sender == receiver) return 0;
  const ActivityCosts &activity = *problem.activity;
  const double bytes = (from < to ? activity.forwardCrossing : activity.backwardCrossing)[size_t(unit)];
  return bytes > 0 ? sendSeconds(*problem.model->cluster, problem.tierBetween(sender, receiver), bytes) : 0;
}

int linkBetween(const StageProblem &problem, int stage, int other) {
  return problem.linkBetween(problem.rankOf(stage), problem.rankOf(other));
}

// Seconds of one stage's messages, by the unit that it begins with and the one that it ends before.
struct Messages {
  Messages(const StageProblem &problem, int stage, int units)
      : back(size_t(units) + 1, 0.0), on(size_t(units) + 1, 0.0) {
    const bool isFirst = stage == 0, isLast = stage + 1 == problem.stages();
    for (int unit = 1; unit < units; ++unit) {
      if (!isFirst) back[size_t(unit)] = messageSeconds(problem, stage, stage - 1, unit);
      if (!isLast) on[size_t(unit)] = messageSeconds(problem, stage, stage + 1, unit);
    }
    isOneLink = !isFirst && !isLast && linkBetween(problem, stage, stage - 1) == linkBetween(problem, stage, stage + 1);
  }
  double seconds(int first, int end) const {
    const double to = back[size_t(first)], from = on[size_t(end)];
    return isOneLink ? to + from : std::max(to, from);
  }

  std::vector<double> back, on;
  bool isOneLink = false;
};

} // namespace

double longestMessages(const StageProblem &problem, const std::vector<int> &starts) {
  const int stages = problem.stages();
  if (problem.ranks() == 1) return 0;
  std::vector<std::array<double, 2>> busy(size_t(problem.ranks()));
  double longest = 0;
  for (int stage = 0; stage < stages; ++stage)
    for (int other : {stage - 1, stage + 1}) {
      if (other < 0 || other >= stages) continue;
      double &of = busy[size_t(problem.rankOf(stage))][size_t(linkBetween(problem, stage, other))];
      of += messageSeconds(problem, stage, other, starts[size_t(std::max(stage, other))]);
      longest = std::max(longest, of);
    }
  return longest / double(std::max(1, stages / problem.ranks()));
}

std::vector<int> cutByMessages(const StageProblem &problem, const std::vector<double> &before) {
  const int count = int(before.size()) - 1, stages = problem.stages();
  std::vector<double> slowest(before.size(), infinity); // of the stages so far, which end before a unit
  std::vector<std::vector<int>> starts(size_t(stages), std::vector<int>(before.size(), 0));
  slowest[0] = 0;
  for (int stage = 0; stage < stages; ++stage) {
    const Messages messages(problem, stage, count);
    std::vector<double> next(slowest.size(), infinity);
    const int last = count - (stages - 1 - stage); // a unit for each stage after it
    for (int end = stage + 1 == stages ? count : stage + 1; end <= last; ++end)
      for (int first = end - 1; first >= stage; --first) {
        const double passes = before[size_t(end)] - before[size_t(first)];
        if (passes >= next[size_t(end)]) break; // and longer ones too
        const double seconds = std::max({slowest[size_t(first)], passes, messages.seconds(first, end)});
        if (seconds >= next[size_t(end)]) continue;
        next[size_t(end)] = seconds;
        starts[size_t(stage)][size_t(end)] = first;
      }
    slowest = std::move(next);
  }
  std::vector<int> cut(static_cast<size_t>(stages));
  for (int stage = stages, end = count; stage-- > 0; end = cut[size_t(stage)])
    cut[size_t(stage)] = starts[size_t(stage)][size_t(end)];
  return cut;
}

} // namespace cleave::planner
