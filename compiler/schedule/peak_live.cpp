#include "compiler/schedule/schedule.h"
#include <algorithm>

namespace cleave::planner {
namespace {

// The most that each of `count` owners holds at a time of what it has from Forward to the end of Backward or `until`.
template <typename OwnerOf>
std::vector<int64_t> peaks(const PipelineSchedule &schedule, int count, ActionKind until, OwnerOf ownerOf) {
  std::vector<int64_t> live(size_t(count), 0), peaks = live;
  for (int rank = 0; rank < schedule.ranks; ++rank)
    for (const ScheduledAction &action : schedule.rows[rank]) {
      const auto owner = size_t(ownerOf(rank, action));
      if (action.kind == ActionKind::Forward)
        peaks[owner] = std::max(peaks[owner], ++live[owner]);
      else if (action.kind == ActionKind::Backward || action.kind == until)
        --live[owner];
    }
  return peaks;
}

} // namespace

std::vector<int64_t> peakLive(const PipelineSchedule &schedule, ActionKind until) {
  return peaks(schedule, schedule.ranks, until, [](int rank, const ScheduledAction &) { return rank; });
}

std::vector<int64_t> peakSlots(const PipelineSchedule &schedule) {
  return peaks(schedule, schedule.stages, ActionKind::BackwardWeight,
               [](int, const ScheduledAction &action) { return action.stage; });
}

} // namespace cleave::planner
