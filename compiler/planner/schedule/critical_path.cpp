#include "compiler/planner/schedule/critical_path.h"
#include <map>

namespace cleave::planner {
namespace {

// Every action's end, and which action it had to wait for: the one before it in its row, or the one that sent its
// input. Messages of a rank over one link go one after the other, in the order of its row.
class LongestPaths {
public:
  LongestPaths(const PipelineSchedule &schedule, std::span<const StageTimes> stages)
      : schedule(schedule), stages(stages), microbatches(schedule.microbatches),
        forwards(size_t(schedule.stages) * size_t(microbatches), none), gradients(forwards.size(), none) {
    int64_t count = 0;
    for (const auto &row : schedule.rows) {
      first.push_back(count);
      for (const ScheduledAction &action : row) {
        actions.push_back(&action);
        const size_t at = place(action.stage, action.microbatch);
        if (action.kind == ActionKind::Forward) forwards[at] = count;
        if (action.kind == ActionKind::Backward || action.kind == ActionKind::BackwardInput) gradients[at] = count;
        ++count;
      }
    }
    first.push_back(count);
    ends.assign(size_t(count), -1.0);
    arrivals.assign(size_t(count), 0.0);
    before.assign(size_t(count), none);
    queuedAfter.assign(size_t(count), none);
    lastSent.assign(size_t(schedule.ranks), {});
  }

  std::vector<SchedulePath> run() {
    findEnds();
    std::vector<SchedulePath> paths;
    for (int rank = 0; rank < schedule.ranks; ++rank)
      if (!schedule.rows[size_t(rank)].empty()) paths.push_back(walk(rank));
    return paths;
  }

private:
  static constexpr int64_t none = -1;

  size_t place(int stage, int64_t microbatch) const {
    return size_t(stage) * size_t(microbatches) + size_t(microbatch);
  }
  const StageTimes &times(int stage) const { return stages[stages.size() == 1 ? 0 : size_t(stage)]; }

  // The action whose result it needs from another stage; the loss's gradient comes from the last stage's own forward.
  int64_t source(const ScheduledAction &action) const {
    if (action.kind == ActionKind::BackwardWeight) return none;
    if (action.kind == ActionKind::Forward)
      return action.stage == 0 ? none : forwards[place(action.stage - 1, action.microbatch)];
    if (action.stage + 1 == schedule.stages) return forwards[place(action.stage, action.microbatch)];
    return gradients[place(action.stage + 1, action.microbatch)];
  }

  bool sends(const ScheduledAction &from, const ScheduledAction &to) const {
    return schedule.rankOfStage[size_t(from.stage)] != schedule.rankOfStage[size_t(to.stage)];
  }

  double duration(const ScheduledAction &action) const {
    const StageTimes &stage = times(action.stage);
    if (action.kind == ActionKind::Forward) return stage.forward;
    return (action.kind == ActionKind::BackwardWeight ? 0 : stage.backwardInput) +
           (action.kind == ActionKind::BackwardInput ? 0 : stage.backwardWeight);
  }

  // A rank's row as far as its inputs are known; then the ranks that waited for it.
  void findEnds() {
    std::vector<int64_t> next(first.begin(), first.end() - 1);
    std::vector<int> work;
    for (int rank = schedule.ranks; rank-- > 0;) work.push_back(rank);
    while (!work.empty()) {
      const int rank = work.back();
      work.pop_back();
      for (int64_t &at = next[size_t(rank)]; at < first[size_t(rank) + 1]; ++at) {
        const ScheduledAction &action = *actions[size_t(at)];
        const int64_t input = source(action);
        double start = at > first[size_t(rank)] ? ends[size_t(at - 1)] : 0, arrival = 0;
        if (at > first[size_t(rank)]) before[size_t(at)] = at - 1;
        if (input != none) {
          if (ends[size_t(input)] < 0) break;
          arrival = sends(*actions[size_t(input)], action) ? arrivals[size_t(input)] : ends[size_t(input)];
          if (arrival > start) before[size_t(at)] = input;
        }
        ends[size_t(at)] = std::max(start, arrival) + duration(action);
        if (action.kind == ActionKind::BackwardWeight) continue;
        const int to = action.kind == ActionKind::Forward ? action.stage + 1 : action.stage - 1;
        if (to < 0 || to >= schedule.stages) continue;
        if (const int waits = schedule.rankOfStage[size_t(to)]; waits != rank) {
          send(rank, at);
          work.push_back(waits);
        }
      }
    }
  }

  void send(int rank, int64_t at) {
    const ScheduledAction &action = *actions[size_t(at)];
    const bool isForward = action.kind == ActionKind::Forward;
    const StageTimes &stage = times(action.stage);
    const double seconds = isForward ? stage.sendForward : stage.sendBackward;
    arrivals[size_t(at)] = ends[size_t(at)];
    if (seconds <= 0) return;
    int64_t &last =
        lastSent[size_t(rank)].try_emplace(isForward ? stage.linkForward : stage.linkBackward, none).first->second;
    if (last != none && arrivals[size_t(last)] > ends[size_t(at)]) {
      arrivals[size_t(at)] = arrivals[size_t(last)];
      queuedAfter[size_t(at)] = last;
    }
    arrivals[size_t(at)] += seconds;
    last = at;
  }

  SchedulePath walk(int rank) const {
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
      from = before[size_t(at)];
      if (from == none || !sends(*actions[size_t(from)], action)) continue;
      while (true) { // its message, and those that had the link before it
        const ScheduledAction &sender = *actions[size_t(from)];
        ++(sender.kind == ActionKind::Forward ? path.sendForward : path.sendBackward)[size_t(sender.stage)];
        if (queuedAfter[size_t(from)] == none) break;
        from = queuedAfter[size_t(from)];
      }
    }
    return path;
  }

  const PipelineSchedule &schedule;
  std::span<const StageTimes> stages;
  int64_t microbatches;
  std::vector<const ScheduledAction *> actions; // of all rows, one after the other
  std::vector<int64_t> first;                   // of each row, and the number of all
  std::vector<int64_t> forwards, gradients;     // [stage][microbatch]: the action that makes it
  std::vector<double> ends;                     // -1: not known yet
  std::vector<double> arrivals;                 // when what an action sent has come
  std::vector<int64_t> before;                  // what an action waited for
  std::vector<int64_t> queuedAfter;             // the action whose message had the link until its own could go
  std::vector<std::map<int, int64_t>> lastSent; // by rank and link
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
  return LongestPaths(schedule, stages).run();
}

} // namespace cleave::planner
