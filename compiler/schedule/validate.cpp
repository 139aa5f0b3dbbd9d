#include "compiler/schedule/csv.h"
#include "compiler/schedule/simulate.h"
#include <fmt/format.h>
#include <map>
#include <utility>

namespace cleave::planner {
namespace {

// A place in the table as a person counts it, and what stands there: "rank 1, cell 3 (1B0)".
std::string place(const PipelineSchedule &schedule, int rank, size_t cell) {
  return fmt::format("rank {}, cell {} ({})", rank, cell + 1, cellText(schedule.rows[rank][cell]));
}

Status checkShape(const PipelineSchedule &schedule) {
  if (schedule.ranks < 1 || schedule.stages < 1 || schedule.microbatches < 1)
    return inputError(fmt::format("schedule '{}': {} ranks, {} stages, {} microbatches: each must be at least 1",
                                  schedule.kind, schedule.ranks, schedule.stages, schedule.microbatches));
  if (schedule.rows.size() != size_t(schedule.ranks) || schedule.rankOfStage.size() != size_t(schedule.stages))
    return inputError(fmt::format("schedule '{}': {} rows for {} ranks, {} placed stages of {}", schedule.kind,
                                  schedule.rows.size(), schedule.ranks, schedule.rankOfStage.size(), schedule.stages));
  for (int stage = 0; stage < schedule.stages; ++stage)
    if (schedule.rankOfStage[stage] < 0 || schedule.rankOfStage[stage] >= schedule.ranks)
      return inputError(fmt::format("schedule '{}': stage {} lies on rank {}, and there are {}", schedule.kind, stage,
                                    schedule.rankOfStage[stage], schedule.ranks));
  return Status::ok();
}

// The passes that have been done for a (stage, microbatch).
enum Done : uint8_t { Nothing = 0, ForwardDone = 1, InputDone = 2, WeightDone = 4, All = 7 };

Done does(ActionKind kind) {
  switch (kind) {
  case ActionKind::Forward:
    return ForwardDone;
  case ActionKind::Backward:
    return Done(InputDone | WeightDone);
  case ActionKind::BackwardInput:
    return InputDone;
  case ActionKind::BackwardWeight:
    return WeightDone;
  }
  return Nothing;
}

// Every cell is on its rank, once, after what it needs on the same rank; nothing is missing.
Status checkCells(const PipelineSchedule &schedule) {
  std::vector<uint8_t> done(size_t(schedule.stages) * schedule.microbatches, Nothing);
  for (int rank = 0; rank < schedule.ranks; ++rank)
    for (size_t cell = 0; cell < schedule.rows[rank].size(); ++cell) {
      const ScheduledAction &action = schedule.rows[rank][cell];
      auto wrong = [&](const std::string &why) {
        return inputError(fmt::format("schedule '{}': {}: {}", schedule.kind, place(schedule, rank, cell), why));
      };
      if (action.stage < 0 || action.stage >= schedule.stages)
        return wrong(fmt::format("there are stages 0 to {}", schedule.stages - 1));
      if (action.microbatch < 0 || action.microbatch >= schedule.microbatches)
        return wrong(fmt::format("there are microbatches 0 to {}", schedule.microbatches - 1));
      if (schedule.rankOfStage[action.stage] != rank)
        return wrong(fmt::format("stage {} lies on rank {}", action.stage, schedule.rankOfStage[action.stage]));
      uint8_t &before = done[size_t(action.stage) * schedule.microbatches + action.microbatch];
      const Done adds = does(action.kind);
      if (before & adds) return wrong("a second time");
      const std::string of = fmt::format("of stage {}, microbatch {}", action.stage, action.microbatch);
      if (adds != ForwardDone && !(before & ForwardDone)) return wrong("before the forward pass " + of);
      if (adds == WeightDone && !(before & InputDone)) return wrong("before the input gradient " + of);
      before |= adds;
    }
  for (int stage = 0; stage < schedule.stages; ++stage)
    for (int64_t m = 0; m < schedule.microbatches; ++m) {
      const uint8_t has = done[size_t(stage) * schedule.microbatches + m];
      if (has == All) continue;
      const char *missing = !(has & ForwardDone) ? "forward pass"
                            : !(has & InputDone) ? "backward pass"
                                                 : "weight gradient";
      return inputError(fmt::format("schedule '{}': the {} of stage {}, microbatch {} is missing in the row of rank {}",
                                    schedule.kind, missing, stage, m, schedule.rankOfStage[stage]));
    }
  return Status::ok();
}

// Every rank comes to the end of its row.
Status checkProgress(const PipelineSchedule &schedule) {
  const StageTimes any;
  const Simulation simulation = simulate(schedule, std::span(&any, 1));
  std::string stuck;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    const size_t next = simulation.actions[rank].size();
    if (next == schedule.rows[rank].size()) continue;
    ScheduledAction waits = schedule.rows[rank][next];
    waits.stage += waits.kind == ActionKind::Forward ? -1 : 1;
    stuck += fmt::format("\n  {} waits for {} of rank {}", place(schedule, rank, next), cellText(waits),
                         schedule.rankOfStage[waits.stage]);
  }
  if (stuck.empty()) return Status::ok();
  return inputError(fmt::format("schedule '{}' never ends, its ranks wait for each other:{}", schedule.kind, stuck));
}

// From a rank to another, activations in one stream and gradients in another: sent in the order of the sender's row,
// used in the order of the receiver's.
Status checkTransfers(const PipelineSchedule &schedule) {
  struct Stream {
    std::vector<std::pair<int64_t, size_t>> sent, used; // value (receiving stage and microbatch), cell
  };
  std::map<std::tuple<int, int, bool>, Stream> streams; // sender, receiver, gradients
  for (int rank = 0; rank < schedule.ranks; ++rank)
    for (size_t cell = 0; cell < schedule.rows[rank].size(); ++cell) {
      const ScheduledAction &action = schedule.rows[rank][cell];
      if (action.kind == ActionKind::BackwardWeight) continue;
      const bool gradient = action.kind != ActionKind::Forward;
      const int to = schedule.receiver(action), from = action.stage + (gradient ? 1 : -1);
      const int sender = from < 0 || from >= schedule.stages ? rank : schedule.rankOfStage[from];
      if (to >= 0 && schedule.rankOfStage[to] != rank)
        streams[{rank, schedule.rankOfStage[to], gradient}].sent.emplace_back(
            to * schedule.microbatches + action.microbatch, cell);
      if (sender != rank)
        streams[{sender, rank, gradient}].used.emplace_back(action.stage * schedule.microbatches + action.microbatch,
                                                            cell);
    }
  for (const auto &[key, stream] : streams) {
    const auto &[sender, receiver, gradient] = key;
    for (size_t i = 0; i < stream.sent.size(); ++i)
      if (stream.sent[i].first != stream.used[i].first)
        return inputError(
            fmt::format("schedule '{}': rank {} sends its {} {} to rank {} by {}, but the first that rank {} "
                        "needs then is that of {}: transfers are matched in order",
                        schedule.kind, sender, gradient ? "gradient" : "activation", i + 1, receiver,
                        place(schedule, sender, stream.sent[i].second), receiver,
                        place(schedule, receiver, stream.used[i].second)));
  }
  return Status::ok();
}

} // namespace

Status validate(const PipelineSchedule &schedule) {
  CLEAVE_RETURN_IF_ERROR(checkShape(schedule));
  CLEAVE_RETURN_IF_ERROR(checkCells(schedule));
  CLEAVE_RETURN_IF_ERROR(checkProgress(schedule));
  return checkTransfers(schedule);
}

} // namespace cleave::planner
