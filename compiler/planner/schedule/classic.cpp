#include "compiler/planner/schedule/generators.h"
#include <algorithm>

namespace cleave::planner {

void fillBreadthFirst(PipelineSchedule &schedule) {
  for (int stage = 0; stage < schedule.stages; ++stage)
    for (int64_t m = 0; m < schedule.microbatches; ++m)
      schedule.rows[schedule.rankOfStage[stage]].push_back({ActionKind::Forward, stage, m});
  for (int stage = schedule.stages - 1; stage >= 0; --stage)
    for (int64_t m = 0; m < schedule.microbatches; ++m)
      schedule.rows[schedule.rankOfStage[stage]].push_back({ActionKind::Backward, stage, m});
}

void fillOneForwardOneBackward(PipelineSchedule &schedule) {
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    auto &row = schedule.rows[rank];
    const int64_t ahead = std::min<int64_t>(schedule.ranks - 1 - rank, schedule.microbatches);
    for (int64_t m = 0; m < ahead; ++m) row.push_back({ActionKind::Forward, rank, m});
    for (int64_t m = 0; m < schedule.microbatches; ++m) {
      if (m + ahead < schedule.microbatches) row.push_back({ActionKind::Forward, rank, m + ahead});
      row.push_back({ActionKind::Backward, rank, m});
    }
  }
}

void fillInterleaved(PipelineSchedule &schedule) {
  const int64_t ranks = schedule.ranks, chunks = schedule.stages / schedule.ranks;
  const int64_t turns = schedule.microbatches * chunks; // forwards of a rank, counted over its chunks
  // Turn k of a rank: P microbatches through the first chunk, the same P through the second, and so on.
  auto chunkOf = [&](int64_t k) { return k % (ranks * chunks) / ranks; };
  auto microbatchOf = [&](int64_t k) { return k / (ranks * chunks) * ranks + k % ranks; };
  for (int64_t rank = 0; rank < ranks; ++rank) {
    auto &row = schedule.rows[rank];
    auto forward = [&](int64_t k) {
      row.push_back({ActionKind::Forward, static_cast<int>(chunkOf(k) * ranks + rank), microbatchOf(k)});
    };
    auto backward = [&](int64_t k) {
      const int64_t chunk = chunks - 1 - chunkOf(k);
      row.push_back({ActionKind::Backward, static_cast<int>(chunk * ranks + rank), microbatchOf(k)});
    };
    const int64_t ahead = std::min(turns, 2 * (ranks - 1 - rank) + (chunks - 1) * ranks);
    for (int64_t k = 0; k < ahead; ++k) forward(k);
    for (int64_t k = 0; k < turns; ++k) {
      if (k + ahead < turns) forward(k + ahead);
      backward(k);
    }
  }
}

} // namespace cleave::planner
