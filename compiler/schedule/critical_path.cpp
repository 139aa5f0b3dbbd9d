#include "compiler/schedule/critical_path.h"
#include "compiler/schedule/simulate.h"
#include <map>
#include <utility>

namespace cleave::planner {
namespace {

// Goes back from the end of a rank's row through what every action had to wait for: the one before it in its row, or
// the one that sent its input. Messages of a rank over one link go one after the other, in the order of its row.
class LongestPaths {
public:
  LongestPaths(const PipelineSchedule &schedule, std::span<const StageTimes> stages)
      : schedule(schedule), microbatches(schedule.microbatches),
        forwards(size_t(schedule.stages) * size_t(microbatches), none), gradients(forwards.size(), none) {
    const Simulation simulation = simulate(schedule, stages);
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const auto &row = schedule.rows[size_t(rank)];
      first.push_back(int64_t(actions.size()));
      times.insert(times.end(), simulation.actions[size_t(rank)].begin(), simulation.actions[size_t(rank)].end());
      std::map<int, int64_t> lastSent; // by link
      for (const ScheduledAction &action : row) {
        const auto at = int64_t(actions.size());
        actions.push_back(&action);
        sentBefore.push_back(none);
        if (action.kind == ActionKind::BackwardWeight) continue;
        const bool isForward = action.kind == ActionKind::Forward;
        (isForward ? forwards : gradients)[place(action.stage, action.microbatch)] = at;
        const StageTimes &stage = stages[stages.size() == 1 ? 0 : size_t(action.stage)];
        const int to = schedule.receiver(action);
        if (to < 0 || schedule.rankOfStage[size_t(to)] == rank) continue;
        if ((isForward ? stage.sendForward : stage.sendBackward) <= 0) continue;
        auto [last, isFirst] = lastSent.try_emplace(isForward ? stage.linkForward : stage.linkBackward, at);
        if (!isFirst) sentBefore.back() = std::exchange(last->second, at);
      }
    }
    first.push_back(int64_t(actions.size()));
  }

  // To the end of the rank's last action.
  SchedulePath of(int rank) const {
    SchedulePath path;
    path.rank = rank;
    for (auto *counts :
         {&path.forward, &path.backwardInput, &path.backwardWeight, &path.sendForward, &path.sendBackward})
      counts->assign(size_t(schedule.stages), 0.0);
    int64_t from = none;
    for (int64_t at = first[size_t(rank) + 1] - 1; at != none; at = from) {
      const ScheduledAction &action = *actions[size_t(at)];
      const size_t stage = size_t(action.stage);
      if (action.kind == ActionKind::Forward) ++path.forward[stage];
      if (action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardInput) ++path.backwardInput[stage];
      if (action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardWeight)
        ++path.backwardWeight[stage];
      from = before(at);
      if (from == none || rankOf(from) == rankOf(at)) continue;
      for (int64_t sent = from; sent != none;
           sent = queuedAfter(sent)) { // its message, and those before it on the link
        from = sent;
        const ScheduledAction &sender = *actions[size_t(sent)];
        ++(sender.kind == ActionKind::Forward ? path.sendForward : path.sendBackward)[size_t(sender.stage)];
      }
    }
    return path;
  }

private:
  static constexpr int64_t none = -1;

  size_t place(int stage, int64_t microbatch) const {
    return size_t(stage) * size_t(microbatches) + size_t(microbatch);
  }
  int rankOf(int64_t at) const { return schedule.rankOfStage[size_t(actions[size_t(at)]->stage)]; }

  // The action whose result it needs from another stage; the loss's gradient comes from the last stage's own forward.
  int64_t source(const ScheduledAction &action) const {
    if (action.kind == ActionKind::BackwardWeight) return none;
    if (action.kind == ActionKind::Forward)
      return action.stage == 0 ? none : forwards[place(action.stage - 1, action.microbatch)];
    if (action.stage + 1 == schedule.stages) return forwards[place(action.stage, action.microbatch)];
    return gradients[place(action.stage + 1, action.microbatch)];
  }

  // The action that it had to wait for.
  int64_t before(int64_t at) const {
    const bool isFirst = at == first[size_t(rankOf(at))];
    const int64_t input = source(*actions[size_t(at)]);
    if (input != none && times[size_t(at)].arrival > (isFirst ? 0 : times[size_t(at) - 1].end)) return input;
    return isFirst ? none : at - 1;
  }

  // The action whose message had the link until this one's could go.
  int64_t queuedAfter(int64_t at) const {
    const int64_t last = sentBefore[size_t(at)];
    if (last == none) return none;
    const ScheduledAction &sender = *actions[size_t(last)];
    const size_t to = place(schedule.receiver(sender), sender.microbatch);
    const int64_t receiver = (sender.kind == ActionKind::Forward ? forwards : gradients)[to];
    return times[size_t(receiver)].arrival > times[size_t(at)].end ? last : none;
  }

  const PipelineSchedule &schedule;
  int64_t microbatches;
  std::vector<const ScheduledAction *> actions; // of all rows, one after the other
  std::vector<ActionTime> times;                // of each
  std::vector<int64_t> first;                   // of each row, and the number of all
  std::vector<int64_t> forwards, gradients;     // [stage][microbatch]: the action that makes it
  std::vector<int64_t> sentBefore;              // the action that used an action's link before it
};

} // namespace

double SchedulePath::seconds(std::span<const StageTimes> stages) const {
  double sum = 0;
  for (size_t s = 0; s < forward.size(); ++s)
    sum += forward[s] * stages[s].forward + backwardInput[s] * stages[s].backwardInput +
           backwardWeight[s] * stages[s].backwardWeight + sendForward[s] * stages[s].sendForward +
           sendBackward[s] * stages[s].sendBackward;
  return sum;
}

std::vector<SchedulePath> criticalPaths(const PipelineSchedule &schedule, std::span<const StageTimes> stages) {
  const LongestPaths longest(schedule, stages);
  std::vector<SchedulePath> paths;
  for (int rank = 0; rank < schedule.ranks; ++rank)
    if (!schedule.rows[size_t(rank)].empty()) paths.push_back(longest.of(rank));
  return paths;
}

} // namespace cleave::planner
