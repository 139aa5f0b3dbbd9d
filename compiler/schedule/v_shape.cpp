// Schedules on a V: rank r holds stage r, on the way down, and stage 2 P - 1 - r, on the way up.
#include "compiler/schedule/generators.h"
#include <deque>

namespace cleave::planner {
namespace {

// Writes a rank's row; the next microbatch of each (chunk, kind) follows by itself. Chunk 0 is the way down.
class RowWriter {
public:
  RowWriter(PipelineSchedule &schedule, int rank)
      : row(schedule.rows[rank]), microbatches(schedule.microbatches), stage{rank, schedule.stages - 1 - rank} {}

  void forward(int chunk) { row.push_back({ActionKind::Forward, stage[chunk], forwards[chunk]++}); }
  void backward(int chunk) { row.push_back({ActionKind::Backward, stage[chunk], backwards[chunk]++}); }
  void inputGradient(int chunk) {
    waiting.push_back({ActionKind::BackwardWeight, stage[chunk], backwards[chunk]});
    row.push_back({ActionKind::BackwardInput, stage[chunk], backwards[chunk]++});
  }
  void weightGradient() { // the one that waits longest
    row.push_back(waiting.front());
    waiting.pop_front();
  }
  bool forwardsLeft(int chunk) const { return forwards[chunk] < microbatches; }
  bool backwardsLeft(int chunk) const { return backwards[chunk] < microbatches; }
  bool weightWaits() const { return !waiting.empty(); }

private:
  std::vector<ScheduledAction> &row;
  int64_t microbatches;
  int stage[2];
  int64_t forwards[2] = {0, 0}, backwards[2] = {0, 0};
  std::deque<ScheduledAction> waiting;
};

} // namespace

void fillZeroBubbleV(PipelineSchedule &schedule, const StageTimes &) {
  const int ranks = schedule.ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    RowWriter row(schedule, rank);
    // Warm-up: forwards go down until the first comes up again; then both ways in turn; then up only, with gradients.
    for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) row.forward(0);
    for (int i = 0; i < rank; ++i) row.forward(1), row.forward(0);
    for (int i = 0; i < ranks - rank; ++i) row.forward(1), row.inputGradient(1), row.weightGradient();
    // Steady: a forward and a whole backward of each chunk in turn.
    while (row.forwardsLeft(0) || row.forwardsLeft(1)) {
      if (row.forwardsLeft(0)) row.forward(0);
      row.inputGradient(0), row.weightGradient();
      row.forward(1), row.inputGradient(1), row.weightGradient();
    }
    // Cool-down: input gradients first, weight gradients where a rank would wait.
    for (int i = 0; i < rank; ++i) row.inputGradient(0), row.inputGradient(1);
    while (row.backwardsLeft(0)) {
      row.inputGradient(0);
      row.weightGradient();
    }
    while (row.weightWaits()) row.weightGradient();
  }
}

void fillDualPipeV(PipelineSchedule &schedule, const StageTimes &) {
  const int ranks = schedule.ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    RowWriter row(schedule, rank);
    const int after = ranks - 1 - rank; // ranks after this one
    for (int i = 0; i < 2 * after; ++i) row.forward(0);
    for (int i = 0; i < rank + 1; ++i) row.forward(0), row.forward(1);
    for (int i = 0; i < after; ++i) row.inputGradient(1), row.weightGradient(), row.forward(1);
    for (int64_t i = 0; i < schedule.microbatches - 2 * ranks + rank + 1; ++i) {
      row.forward(0), row.backward(1);
      row.forward(1), row.backward(0);
    }
    for (int i = 0; i < after; ++i) row.backward(1), row.forward(1), row.backward(0);
    // Half of the last backwards are whole; then their weight gradients wait for the idle times at the end.
    for (int i = 0, halved = 0; i < 2 * (rank + 1); ++i) {
      if (i == 2 * ((rank + 1) / 2) + (rank % 2 == 0 ? 1 : 0)) halved = 1;
      if (halved)
        row.inputGradient(1 - i % 2);
      else
        row.backward(1 - i % 2);
    }
    for (int i = 0; i < after; ++i) row.weightGradient(), row.inputGradient(0);
    while (row.weightWaits()) row.weightGradient();
  }
}

} // namespace cleave::planner
