#include "compiler/planner/explain/memory_over_time.h"
#include "compiler/schedule/simulate.h"
#include <algorithm>
#include <optional>
#include <vector>

namespace cleave::planner {
namespace {

// So many points of memory over time are kept; of more, the fullest of each stretch.
constexpr size_t mostPoints = 64;

// The fullest point of each stretch of time, and the last one: the update.
std::vector<MemoryPoint> thinned(std::vector<MemoryPoint> points) {
  if (points.size() <= mostPoints) return points;
  const size_t passes = points.size() - 1, kept = mostPoints - 1;
  std::vector<MemoryPoint> result;
  for (size_t i = 0; i < kept; ++i) {
    auto begin = points.begin() + long(i * passes / kept);
    auto end = points.begin() + long((i + 1) * passes / kept);
    result.push_back(*std::max_element(
        begin, end, [](const MemoryPoint &a, const MemoryPoint &b) { return a.memory.total() < b.memory.total(); }));
  }
  result.push_back(points.back());
  return result;
}

// A rank's memory by kind, added up moment by moment.
class Timeline {
public:
  Timeline(const DecidedModel &decided, const PlanEvaluation &evaluation, int rank) : decided(decided), rank(rank) {
    device = evaluation.predicted.memory;
    for (const StageDecision &stage : evaluation.stages)
      if (evaluation.stages.size() > 1 && stage.rank == rank) device = stage.memory;
    const std::vector<Unit> &units = decided.model.layout->units;
    std::vector<bool> isMine(units.size());
    for (size_t u = 0; u < units.size(); ++u) {
      isMine[u] = decided.rankOf(int(u)) == rank;
      if (!isMine[u]) continue;
      cost.add(decided.activity.of(units[u].kind, decided.plan.recompute[u]));
      cost.add(decided.state.kinds[size_t(units[u].kind)]);
    }
    const auto &shared = decided.model.layout->shared;
    for (size_t p = 0; p < shared.size(); ++p)
      if (std::ranges::any_of(shared[p].units, [&](int unit) { return bool(isMine[size_t(unit)]); }))
        cost.add(decided.state.shared[p]);
    parts = memoryByPart(decided.model.setting, cost, device);
  }

  // `kept` for backward passes, all microbatches together.
  void forward(double seconds, double kept) {
    add(seconds, StepPart::Forward, parts.forward, kept + passingBytes(cost));
  }
  // `isAgain`: what is computed again is made in it.
  void backward(double seconds, double kept, bool isLast, bool isAgain = true) {
    PartOfStep part = isLast ? parts.lastBackward : parts.backward;
    double activations = kept + passingBytes(cost) + (isAgain ? cost.transient : 0);
    if (!decided.model.setting.addsUpGradients()) {
      part = {made.gradients + made.inRoom, part.workspace - bucketsToCome()};
      // The workspace has what the unit at work needs of activations and gradients.
      const double others = device.parameters + device.optimizer + part.gradients + part.workspace;
      activations = std::min(activations, device.total() - others);
    }
    add(seconds, StepPart::Backward, part, activations);
  }
  // The backward pass of a unit makes its parameters' gradients, and of what several units read the first of them that
  // it comes to: the others add theirs.
  void makeGradients(int unit) {
    made.add(decided.state.kinds[size_t(decided.model.layout->units[size_t(unit)].kind)]);
    const auto &shared = decided.model.layout->shared;
    for (size_t p = 0; p < shared.size(); ++p)
      if (std::ranges::max(shared[p].units) == unit) made.add(decided.state.shared[p]);
  }
  std::vector<MemoryPoint> update(double seconds) {
    add(seconds, StepPart::Update, parts.update, 0);
    return thinned(std::move(points));
  }

  const DecidedModel &decided;
  const int rank;

private:
  // Bytes of buckets, and of what they are scattered to, for which there are no gradients yet.
  double bucketsToCome() const {
    const Workspace all = workspaceOf(decided.model.setting, cost), now = workspaceOf(decided.model.setting, made);
    return all.scattered - std::min(all.scattered, now.scattered) + all.buckets - std::min(all.buckets, now.buckets);
  }

  void add(double seconds, StepPart part, const PartOfStep &bytes, double activations) {
    MemoryPoint point{seconds, part, device};
    point.memory.activations = activations;
    point.memory.gradients = bytes.gradients;
    point.memory.workspace = bytes.workspace;
    points.push_back(point);
  }

  MemoryBreakdown device; // at its fullest
  Cost cost, made;        // of all its units; of the parameters whose gradients are made
  MemoryByPart parts;
  std::vector<MemoryPoint> points;
};

// Without pipeline: all units forward, then backward, for each microbatch alike. Room for what is computed again is
// that of the unit that needs most, as in the estimate.
void addPasses(Timeline &timeline, double &seconds) {
  const DecidedModel &decided = timeline.decided;
  const std::vector<Unit> &units = decided.model.layout->units;
  double kept = 0;
  for (int64_t left = decided.model.setting.microbatches; left > 0; --left) {
    for (size_t u = 0; u < units.size(); ++u) {
      const Cost &unit = decided.activity.of(units[u].kind, decided.plan.recompute[u]);
      seconds += unit.forward;
      kept += unit.activations;
      timeline.forward(seconds, kept);
    }
    for (size_t u = units.size(); u-- > 0;) {
      const Cost &unit = decided.activity.of(units[u].kind, decided.plan.recompute[u]);
      seconds += unit.backwardInput + unit.backwardWeight;
      timeline.makeGradients(int(u));
      timeline.backward(seconds, kept, left == 1);
      kept -= unit.activations;
    }
  }
}

// A pipeline's step: when each action of each rank ends, and what each stage holds of a microbatch.
struct SimulatedStep {
  PipelineSchedule schedule;
  Simulation simulation;
  double turns = 1; // where ranks take turns on cores a step is shorter than what is simulated
  std::vector<double> kept, held, ofLast;
};

Result<SimulatedStep> simulated(const DecidedModel &decided, const PlanEvaluation &evaluation) {
  const SplitModel &model = decided.model;
  std::vector<StageTimes> times;
  times.reserve(evaluation.stages.size());
  for (const StageDecision &stage : evaluation.stages) times.push_back(timesOf(stage));
  Result<PipelineSchedule> schedule =
      makeSchedule(model.setting.schedule, int(model.setting.pp), model.setting.microbatches, scheduleTimes(times));
  if (!schedule) return schedule.status();
  SimulatedStep step{.schedule = std::move(*schedule),
                     .simulation = {},
                     .kept = std::vector<double>(times.size()),
                     .held = std::vector<double>(times.size()),
                     .ofLast = std::vector<double>(times.size())};
  step.simulation = simulate(step.schedule, times);
  step.turns = std::min(1.0, evaluation.predicted.stepSeconds / step.simulation.makespan);
  const std::vector<Unit> &units = model.layout->units;
  for (size_t s = 0; s < times.size(); ++s) {
    int end = s + 1 < times.size() ? decided.plan.firstUnits[s + 1] : int(units.size());
    for (int u = decided.plan.firstUnits[s]; u < end; ++u) {
      const Cost &unit = decided.activity.of(units[size_t(u)].kind, decided.plan.recompute[size_t(u)]);
      step.kept[s] += unit.kept;
      step.held[s] += unit.held;
      step.ofLast[s] += unit.keptOfLast;
    }
  }
  return step;
}

// Adds a rank's actions: its stages keep a microbatch from its forward to the end of its backward. Slots that nothing
// is in are not counted: where a rank has several stages, or half backward passes, they are not all full at once.
void addActions(Timeline &timeline, const SimulatedStep &step, double &seconds) {
  double live = 0;
  const auto &row = step.schedule.rows[size_t(timeline.rank)];
  for (size_t i = 0; i < row.size(); ++i) {
    const size_t stage = size_t(row[i].stage);
    const bool isLast = row[i].microbatch + 1 == step.schedule.microbatches;
    const double bytes = step.kept[stage] + (isLast ? step.ofLast[stage] : 0);
    seconds = step.turns * step.simulation.actions[size_t(timeline.rank)][i].end;
    if (row[i].kind == ActionKind::Forward) live += bytes;
    if (row[i].kind == ActionKind::BackwardInput) live += step.held[stage];
    if (row[i].kind == ActionKind::Forward)
      timeline.forward(seconds, live);
    else
      timeline.backward(seconds, live, isLast, row[i].kind != ActionKind::BackwardWeight);
    if (row[i].kind == ActionKind::Backward) live -= bytes;
    if (row[i].kind == ActionKind::BackwardWeight) live -= bytes + step.held[stage];
  }
}

} // namespace

Result<MemoryOverTime> memoryOverTime(const DecidedModel &decided) {
  const PlanEvaluation evaluation = decided.evaluate();
  MemoryOverTime all;
  double most = 0;
  for (const StageDecision &stage : evaluation.stages)
    if (stage.memory.total() > most) {
      most = stage.memory.total();
      all.fullest = size_t(stage.rank);
    }
  std::optional<SimulatedStep> step;
  if (decided.model.setting.pp > 1) {
    Result<SimulatedStep> made = simulated(decided, evaluation);
    if (!made) return made.status();
    step = std::move(*made);
  }
  for (int rank = 0; rank < decided.model.setting.pp; ++rank) {
    double seconds = 0;
    Timeline timeline(decided, evaluation, rank);
    if (step)
      addActions(timeline, *step, seconds);
    else
      addPasses(timeline, seconds);
    all.ranks.push_back(timeline.update(std::max(seconds, evaluation.predicted.stepSeconds)));
  }
  return all;
}

} // namespace cleave::planner
