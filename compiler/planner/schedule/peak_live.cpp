#include "compiler/planner/schedule/schedule.h"
#include <algorithm>

namespace cleave::planner {

std::vector<int64_t> peakLive(const PipelineSchedule &schedule, ActionKind until) {
  std::vector<int64_t> peaks;
  for (const auto &row : schedule.rows) {
    int64_t live = 0, peak = 0;
    for (const ScheduledAction &action : row) {
      if (action.kind == ActionKind::Forward)
        peak = std::max(peak, ++live);
      else if (action.kind == ActionKind::Backward || action.kind == until)
        --live;
    }
    peaks.push_back(peak);
  }
  return peaks;
}

std::vector<int64_t> peakSlots(const PipelineSchedule &schedule) {
  std::vector<int64_t> live(size_t(schedule.stages), 0), peaks = live;
  for (const auto &row : schedule.rows)
    for (const ScheduledAction &action : row) {
      int64_t &stage = live[size_t(action.stage)];
      if (action.kind == ActionKind::Forward)
        peaks[size_t(action.stage)] = std::max(peaks[size_t(action.stage)], ++stage);
      else if (action.kind != ActionKind::BackwardInput)
        --stage;
    }
  return peaks;
}

std::vector<double> peakActivations(const PipelineSchedule &schedule, std::span<const StageActivations> stages) {
  std::vector<double> peaks;
  for (const auto &row : schedule.rows) {
    double held = 0, peak = 0;
    for (const ScheduledAction &action : row) {
      const StageActivations &stage = stages[stages.size() == 1 ? 0 : action.stage];
      switch (action.kind) {
      case ActionKind::Forward:
        held += stage.whole;
        break;
      case ActionKind::Backward:
        held -= stage.whole;
        break;
      case ActionKind::BackwardInput:
        held += stage.weightPart - stage.whole;
        break;
      case ActionKind::BackwardWeight:
        held -= stage.weightPart;
        break;
      }
      peak = std::max(peak, held);
    }
    peaks.push_back(peak);
  }
  return peaks;
}

} // namespace cleave::planner
