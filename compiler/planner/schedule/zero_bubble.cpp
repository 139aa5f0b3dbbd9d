#include "compiler/planner/schedule/generators.h"
#include <algorithm>

namespace cleave::planner {
namespace {

void fillHandcrafted(PipelineSchedule &schedule, int rank, int64_t ahead, int64_t delay) {
  auto &row = schedule.rows[rank];
  const int64_t microbatches = schedule.microbatches;
  int64_t forwards = std::min(ahead, microbatches), weights = 0;
  for (int64_t m = 0; m < forwards; ++m) row.push_back({ActionKind::Forward, rank, m});
  for (int64_t m = 0; m < microbatches; ++m) {
    row.push_back({ActionKind::BackwardInput, rank, m});
    if (m >= delay) row.push_back({ActionKind::BackwardWeight, rank, weights++});
    if (forwards < microbatches) row.push_back({ActionKind::Forward, rank, forwards++});
  }
  while (weights < microbatches) row.push_back({ActionKind::BackwardWeight, rank, weights++});
}

} // namespace

void fillZeroBubbleH1(PipelineSchedule &schedule) {
  for (int rank = 0; rank < schedule.ranks; ++rank) fillHandcrafted(schedule, rank, schedule.ranks - rank, rank);
}

void fillZeroBubbleH2(PipelineSchedule &schedule) {
  for (int rank = 0; rank < schedule.ranks; ++rank)
    fillHandcrafted(schedule, rank, 2 * (schedule.ranks - rank) - 1, 2 * rank);
}

} // namespace cleave::planner
