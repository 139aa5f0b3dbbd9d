// The step as a report predicts it, action by action: for the page's picture, and for Perfetto beside a measured trace.
#pragma once
#include "compiler/report/report.h"
#include "compiler/schedule/simulate.h"
#include <optional>

namespace cleave::report {

struct PredictedTimeline {
  planner::PipelineSchedule schedule;
  planner::Simulation simulation; // seconds
};
// From the times of the stages and their sends. Nothing without a pipeline, or where the schedule is not known here.
std::optional<PredictedTimeline> predictedTimeline(const Report &report);

// Chrome's trace format (chrome://tracing, Perfetto): a process for each pipeline rank, a slice for each action.
// Without a pipeline one process: forward, backward, reduction, update. A counter has the memory over the step.
std::string renderTrace(const Report &report);

} // namespace cleave::report
