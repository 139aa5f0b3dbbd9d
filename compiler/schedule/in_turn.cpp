#include "compiler/schedule/generators.h"
#include <algorithm>
#include <optional>

namespace cleave::planner {
namespace {

// A rank's row: `ahead` forward passes, then one of each in turn. `group` microbatches pass through the rank's first
// stage, the same ones through its second, and so on; backward passes go through the stages from the last. With `delay`
// they are halved, and the weight gradient of a microbatch follows so many input gradients later.
void fillInTurn(PipelineSchedule &schedule, int rank, int64_t group, int64_t ahead, std::optional<int64_t> delay = {}) {
  const int64_t ranks = schedule.ranks, chunks = schedule.stages / ranks;
  const int64_t passes = schedule.microbatches * chunks; // of each kind
  auto run = [&](ActionKind kind, int64_t pass) {
    const int64_t turn = pass % (group * chunks) / group,
                  chunk = kind == ActionKind::Forward ? turn : chunks - 1 - turn;
    const int64_t microbatch = pass / (group * chunks) * group + pass % group;
    schedule.rows[rank].push_back({kind, static_cast<int>(chunk * ranks + rank), microbatch});
  };
  int64_t forwards = 0, weights = 0;
  while (forwards < std::min(ahead, passes)) run(ActionKind::Forward, forwards++);
  for (int64_t pass = 0; pass < passes; ++pass) {
    if (forwards < passes) run(ActionKind::Forward, forwards++);
    run(delay ? ActionKind::BackwardInput : ActionKind::Backward, pass);
    if (delay && pass >= *delay) run(ActionKind::BackwardWeight, weights++);
  }
  while (delay && weights < passes) run(ActionKind::BackwardWeight, weights++);
}

} // namespace

void fillBreadthFirst(PipelineSchedule &schedule, const StageTimes &) {
  for (int rank = 0; rank < schedule.ranks; ++rank)
    fillInTurn(schedule, rank, schedule.microbatches, schedule.microbatches * schedule.stages);
}

void fillOneForwardOneBackward(PipelineSchedule &schedule, const StageTimes &) {
  for (int rank = 0; rank < schedule.ranks; ++rank)
    fillInTurn(schedule, rank, schedule.microbatches, schedule.ranks - 1 - rank);
}

void fillInterleaved(PipelineSchedule &schedule, const StageTimes &) {
  const int64_t ranks = schedule.ranks;
  for (int rank = 0; rank < ranks; ++rank)
    fillInTurn(schedule, rank, ranks, 2 * (ranks - 1 - rank) + schedule.stages - ranks);
}

void fillZeroBubbleH1(PipelineSchedule &schedule, const StageTimes &) {
  for (int rank = 0; rank < schedule.ranks; ++rank)
    fillInTurn(schedule, rank, schedule.microbatches, schedule.ranks - 1 - rank, rank);
}

void fillZeroBubbleH2(PipelineSchedule &schedule, const StageTimes &) {
  for (int rank = 0; rank < schedule.ranks; ++rank)
    fillInTurn(schedule, rank, schedule.microbatches, 2 * (schedule.ranks - 1 - rank), 2 * rank);
}

} // namespace cleave::planner
