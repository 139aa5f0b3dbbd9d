#include "compiler/schedule/simulate.h"
#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace cleave::planner {
namespace {

constexpr double notYet = std::numeric_limits<double>::infinity();

// The schedule with every value's time of arrival. Actions run in any order that respects the rows: since each link
// belongs to one sender and a rank's actions run in the row's order, the times do not depend on it.
class Timeline {
public:
  Timeline(const PipelineSchedule &schedule, std::span<const StageTimes> stages)
      : schedule(schedule), stages(stages), microbatches(schedule.microbatches),
        activation(size_t(schedule.stages) * microbatches, notYet), gradient(activation.size(), notYet),
        links(2 * size_t(schedule.stages)), next(schedule.ranks), clock(schedule.ranks) {
    std::fill_n(activation.begin(), microbatches, 0.0);
    nameLinks();
  }

  // The stage has the microbatch's activation from the start.
  void arrive(int stage, int64_t microbatch) { activation[size_t(stage) * microbatches + microbatch] = 0; }

  Simulation run() {
    simulation.actions.resize(schedule.ranks);
    std::vector<int> work;
    for (int rank = schedule.ranks - 1; rank >= 0; --rank) {
      simulation.actions[rank].reserve(schedule.rows[rank].size());
      work.push_back(rank);
    }
    while (!work.empty()) {
      const int rank = work.back();
      work.pop_back();
      const auto &row = schedule.rows[rank];
      for (size_t &cell = next[rank]; cell < row.size(); ++cell) {
        const double ready = arrival(row[cell]);
        if (ready == notYet) break;
        const int wakes = perform(rank, row[cell], ready);
        if (wakes != rank && wakes >= 0) work.push_back(wakes);
      }
    }
    sumUp();
    return std::move(simulation);
  }

private:
  const StageTimes &times(int stage) const { return stages[stages.size() == 1 ? 0 : stage]; }

  // links[2 s] carries activations from stage s to s + 1, links[2 s + 1] gradients from s to s - 1; sends of one rank
  // over its link of the same number share one, which is a number into linkFree; none within a rank.
  void nameLinks() {
    std::map<std::pair<int, int>, int> numbers;
    auto name = [&](int from, int to, int link) {
      if (to < 0 || to >= schedule.stages || schedule.rankOfStage[from] == schedule.rankOfStage[to]) return -1;
      const std::pair out(schedule.rankOfStage[from], link);
      return numbers.try_emplace(out, static_cast<int>(numbers.size())).first->second;
    };
    for (int stage = 0; stage < schedule.stages; ++stage) {
      links[2 * stage] = name(stage, stage + 1, times(stage).linkForward);
      links[2 * stage + 1] = name(stage, stage - 1, times(stage).linkBackward);
    }
    linkFree.resize(numbers.size(), 0.0);
  }

  double arrival(const ScheduledAction &action) const {
    const size_t at = size_t(action.stage) * microbatches + action.microbatch;
    if (action.kind == ActionKind::Forward) return activation[at];
    return action.kind == ActionKind::BackwardWeight ? 0 : gradient[at];
  }

  double send(int link, double ready, double seconds) {
    if (link < 0 || seconds <= 0) return ready;
    return linkFree[link] = std::max(linkFree[link], ready) + seconds;
  }

  // Returns the rank that gets a value, or -1.
  int perform(int rank, const ScheduledAction &action, double arrived) {
    const StageTimes &stage = times(action.stage);
    const double start = std::max(clock[rank], arrived), end = start + stage.of(action.kind);
    clock[rank] = end;
    simulation.actions[rank].push_back({start, end, arrived, end});
    const bool isForward = action.kind == ActionKind::Forward;
    if (isForward && action.stage + 1 == schedule.stages) // the loss's gradient
      gradient[size_t(action.stage) * microbatches + action.microbatch] = end;
    const int to = schedule.receiver(action);
    if (to < 0) return -1;
    const int link = links[2 * action.stage + (isForward ? 0 : 1)];
    simulation.actions[rank].back().sent =
        (isForward ? activation : gradient)[size_t(to) * microbatches + action.microbatch] =
            send(link, end, isForward ? stage.sendForward : stage.sendBackward);
    return schedule.rankOfStage[to];
  }

  void sumUp() {
    double mostWork = 0;
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      if (simulation.actions[rank].empty()) continue;
      double work = 0;
      for (const ScheduledAction &action : schedule.rows[rank]) work += times(action.stage).of(action.kind);
      mostWork = std::max(mostWork, work);
      simulation.makespan = std::max(simulation.makespan, clock[rank]);
      simulation.longestRankTime =
          std::max(simulation.longestRankTime, clock[rank] - simulation.actions[rank].front().start);
    }
    computing = mostWork;
    if (simulation.longestRankTime > 0) simulation.bubble = 1 - mostWork / simulation.longestRankTime;
  }

  const PipelineSchedule &schedule;
  std::span<const StageTimes> stages;
  int64_t microbatches;
  std::vector<double> activation, gradient; // [stage][microbatch]: when the stage has it
  std::vector<int> links;
  std::vector<double> linkFree; // when a link has done its sends
  std::vector<size_t> next;     // a rank's next cell
  std::vector<double> clock;    // when a rank has done its cells
  Simulation simulation;

public:
  double computing = 0; // of the rank that computes most
};

// A step that begins with what the step before has done of it, and ends with what it does of the next.
Simulation simulateMeeting(const PipelineSchedule &schedule, std::span<const StageTimes> stages) {
  const std::vector<StepActions> rows = stepActions(schedule);
  PipelineSchedule two = schedule;
  two.microbatches = 2 * schedule.microbatches; // the second half: of the next step
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    two.rows[rank] = rows[rank].actions;
    for (size_t i = 0; i < two.rows[rank].size(); ++i)
      if (rows[rank].ahead[i]) two.rows[rank][i].microbatch += schedule.microbatches;
  }
  Timeline step(two, stages);
  for (const StepActions &row : rows)
    for (const ScheduledAction &action : row.before)
      if (action.stage + 1 < schedule.stages) step.arrive(action.stage + 1, action.microbatch);
  return step.run();
}

} // namespace

Simulation simulate(const PipelineSchedule &schedule, std::span<const StageTimes> stages, bool meets) {
  if (schedule.weightVersions == 1) return Timeline(schedule, stages).run();
  if (meets) return simulateMeeting(schedule, stages);
  // The time that two more steps add when the pipeline is full already.
  const double shorter = Timeline(unrolled(schedule, 2), stages).run().makespan;
  const double longer = Timeline(unrolled(schedule, 4), stages).run().makespan;
  Timeline step(schedule, stages);
  Simulation simulation = step.run();
  simulation.makespan = simulation.longestRankTime = (longer - shorter) / 2;
  if (simulation.makespan > 0) simulation.bubble = 1 - step.computing / simulation.makespan;
  return simulation;
}

double makespanOnSharedCores(const Simulation &simulation, double share, double unfilled) {
  std::vector<std::pair<double, int>> changes; // when, and by how many more are at work
  for (const std::vector<ActionTime> &rank : simulation.actions)
    for (const ActionTime &action : rank) {
      changes.emplace_back(action.start, 1);
      changes.emplace_back(action.end, -1);
    }
  std::ranges::sort(changes);
  double seconds = 0, now = 0;
  int working = 0;
  for (auto [time, more] : changes) {
    seconds += (time - now) * // nobody works: all wait for what is sent
               (working == 0 ? 1 : std::max(share, double(working) / double(simulation.actions.size())));
    now = time;
    working += more;
  }
  return unfilled * simulation.makespan + (1 - unfilled) * seconds;
}

} // namespace cleave::planner
