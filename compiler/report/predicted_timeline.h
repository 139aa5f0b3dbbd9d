// The step as a report predicts it, pass by pass, for each pipeline rank: for the page's picture, and for Perfetto
// beside a measured trace. Times in seconds from the step's start.
#pragma once
#include "compiler/report/report.h"
#include "compiler/schedule/schedule.h"
#include <optional>

namespace cleave::report {

// A pass of a microbatch through a stage. Its collectives are those that nothing hides: `collectives` seconds of it,
// drawn together at its end, though each of them stands behind its layer.
struct TimedPass {
  planner::ScheduledAction action;
  double start = 0, end = 0, collectives = 0;
  double sendStart = 0, sendEnd = 0; // of what it hands to another rank; alike: nothing
};

// After its last pass a rank updates its parameters. Before that come the collectives over gradients and parameters,
// those that passes hide beside the last passes.
struct RankTimeline {
  std::vector<int> stages; // in the order of the model
  std::vector<TimedPass> passes;
  double reductionStart = 0, updateStart = 0, end = 0;
};

struct PredictedTimeline {
  std::vector<RankTimeline> ranks; // one without a pipeline
  double end = 0;
};
// From the times of the stages and their sends. Nothing where the schedule is not known here.
std::optional<PredictedTimeline> predictedTimeline(const Report &report);

// Seconds of one microbatch's pass: its collectives that nothing hides, and the send of its result.
double passCollectives(const Report &report, const Stage &stage, planner::ActionKind kind);
double passSend(const Stage &stage, planner::ActionKind kind);

inline constexpr const char *passNames[] = {"forward", "backward", "input gradient", "weight gradient"};

// The parts of the step that have collectives of their own.
enum class CollectivesOf { Forward, Backward, Step };
// A line for each of the longest kinds, with bytes, count and reason; of a pass the mean of all stages:
// "all_gather over tp: 12.5 MiB in 2 (a reader needs all of it)". Names are printable (runtime/base/printable.h).
std::vector<std::string> collectiveLines(const Report &report, CollectivesOf part);

// Chrome's trace format (chrome://tracing, Perfetto): a process for each pipeline rank with threads for passes,
// collectives and transfers. A counter has the memory over the step.
std::string renderTrace(const Report &report);

} // namespace cleave::report
