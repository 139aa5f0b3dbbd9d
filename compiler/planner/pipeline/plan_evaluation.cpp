#include "compiler/cluster/device_presets.h"
#include "compiler/planner/pipeline/stage_plan.h"
#include "compiler/schedule/simulate.h"
#include "compiler/tuning.h"
#include <algorithm>
#include <set>
#include <utility>

namespace cleave::planner {
namespace {

// Longer schedules are simulated up to here; the rest repeats at the pace of the slowest rank.
constexpr double mostActions = 4e5;

struct RankCosts {
  bool isSeen = false; // one of its stages has been summed
  Cost cost;           // activity of one microbatch, and state
  double kept = 0;     // bytes of all microbatches in flight
  double onHost = 0;   // likewise, in the host's memory
  double buffers = 0;  // of transfers
  PassSeconds sends;   // what it sends other stages of one microbatch; no compute
};

class PlanEvaluator {
public:
  PlanEvaluator(const StageProblem &problem, const StagePlan &plan)
      : problem(problem), plan(plan), model(*problem.model), cluster(*problem.model->cluster),
        layout(*problem.model->layout), microbatches(double(problem.model->setting.microbatches)),
        meets(problem.model->problem->meetsAtUpdate) {}

  PlanEvaluation evaluate() {
    sumStages();
    double end = 0, onHost = 0;
    std::vector<double> ends = simulatedEnds();
    for (size_t s = 0; s < stages.size(); ++s) {
      const double live = slots.empty() ? problem.live(int(s)) : slots[s];
      const double here = problem.profile && live <= 1 ? nearOfStage[s] : 0;
      ranks[size_t(stages[s].rank)].kept += keptOfStage[s] * live + here;
      ranks[size_t(stages[s].rank)].onHost += onHostOfStage[s] * live - here;
    }
    const double part = 1 / double(problem.ranks()); // what a device does on average; what it does not, it waits
    PlanEvaluation result;
    Predicted &predicted = result.predicted;
    for (size_t r = 0; r < ranks.size(); ++r) {
      const RankCosts &rank = ranks[r];
      PassSeconds passes = PassSeconds::of(rank.cost, microbatches);
      passes.add(rank.sends, microbatches);
      const Cost &cost = rank.cost;
      const Hidden hidden = hide(model, BesideSeconds::of(cost), passes);
      const double notHidden = cost.hideable - hidden.seconds + hidden.contention;
      Predicted host;
      double late = addHostTime(model, cost.hostSeconds, cost.hostExposed, cost.keptOnHost, passes.forward,
                                passes.backward, host);
      const double tail = notHidden + cost.exposed + cost.update + late;
      const double last = ends[r] + tail;
      result.notHidden = std::max(result.notHidden, notHidden);
      end = std::max(end, last);
      predicted.computeSeconds += part * (cost.compute() * microbatches + cost.update);
      predicted.hiddenCommunicationSeconds += part * hidden.seconds;
      predicted.exposedCommunicationSeconds +=
          part * (cost.communication * microbatches + notHidden + cost.exposed + late);
      result.contention += part * hidden.contention;
      predicted.hostSeconds += part * host.hostSeconds;
      predicted.exposedHostSeconds += part * host.exposedHostSeconds;
      MemoryBreakdown memory = deviceMemory(model.setting, cost, rank.kept, rank.buffers);
      memory.host += rank.onHost;
      onHost = std::max(onHost, memory.host);
      if (memory.total() > predicted.memory.total()) predicted.memory = memory;
      for (size_t s = 0; s < stages.size(); ++s)
        if (problem.rankOf(int(s)) == int(r)) {
          stages[s].memory = memory;
          stages[s].afterPasses = tail;
        }
    }
    predicted.memory.host = onHost; // another device may have more there
    // Nor do they end before all work is done: what a rank does after its last pass takes a core from others.
    const double busy = predicted.computeSeconds + predicted.exposedCommunicationSeconds;
    if (cluster.device.coreShare < 1) end = std::max(end, busy);
    predicted.stepSeconds = end;
    predicted.bubbleSeconds = std::max(0.0, end - busy);
    if (!problem.profile) predicted.bubbleSeconds = 0;
    fillRate(model, model.setting.devices(), predicted);
    double room = cluster.hostMemoryBytes / double(cluster.devicesPerNode);
    result.fits = predicted.memory.total() <= problem.memoryLimit && (room == 0 || onHost <= room);
    result.stages = std::move(stages);
    result.tied = std::move(tied);
    return result;
  }

private:
  void sumStages() {
    ranks.resize(size_t(problem.ranks()));
    std::vector<std::vector<bool>> seen(ranks.size(), std::vector<bool>(layout.shared.size(), false));
    int count = problem.stages();
    for (int s = 0; s < count; ++s) {
      int first = plan.firstUnits[size_t(s)];
      int end = s + 1 < count ? plan.firstUnits[size_t(s) + 1] : int(layout.units.size());
      RankCosts &rank = ranks[size_t(problem.rankOf(s))];
      Cost work, state;
      if (!rank.isSeen && problem.rankOf(count - 1) != problem.rankOf(s)) state.exposed += problem.state->ofOtherRanks;
      rank.isSeen = true;
      StageDecision stage;
      for (int u = first; u < end; ++u) {
        const Unit &unit = layout.units[size_t(u)];
        Recompute how = plan.recompute[size_t(u)];
        work.add(problem.activity->of(unit.kind, how));
        state.add(problem.state->kinds[size_t(unit.kind)]);
        stage.nodes += unit.end - unit.first;
        stage.blocks += unit.isBlock;
        stage.activationBlocks += unit.isBlock && how == Recompute::Activations;
        stage.selectiveBlocks += unit.isBlock && how == Recompute::Selective;
        stage.recomputedBlocks += unit.isBlock && how == Recompute::Full;
      }
      for (size_t p = 0; p < layout.shared.size(); ++p) {
        const std::vector<int> &readers = layout.shared[p].units;
        bool here = false;
        std::set<int> others; // ranks
        const double gradients = problem.state->shared[p].gradients;
        for (int unit : readers) {
          here |= unit >= first && unit < end;
          const int reader = problem.rankOf(stageOfUnit(unit));
          if (reader != problem.rankOf(s)) others.insert(reader);
        }
        if (gradients == 0) others.clear(); // of what does not train nothing is summed
        meets |= here && !others.empty();
        if (!here || seen[size_t(problem.rankOf(s))][p]) continue;
        seen[size_t(problem.rankOf(s))][p] = true;
        state.add(problem.state->shared[p]);
        // Copies on several ranks: their gradients are summed. Each rank sends its own, and adds what it receives.
        if (!others.empty()) {
          Tier farthest = inNode;
          for (int other : others) farthest = std::max(farthest, problem.tierBetween(problem.rankOf(s), other));
          const double seconds = collectiveSeconds(cluster, Collective::AllReduce, pairAcross(farthest), gradients);
          const double sent = double(others.size()) * gradients;
          tied.push_back({layout.shared[p].variable, sent, seconds});
          state.exposed += seconds;
          rank.buffers += sent;
          work.beside = std::max(work.beside, gradients);
        }
      }
      const double out = s + 1 < count ? problem.activity->forwardCrossing[size_t(end)] : 0;
      const double back = s > 0 ? problem.activity->backwardCrossing[size_t(first)] : 0;
      bool sends = problem.ranks() > 1;
      stage.rank = problem.rankOf(s);
      stage.devices = problem.devicesOfRank();
      stage.parameters = state.elements;
      LinkSeconds sent;
      auto send = [&](int other, double bytes, double &waited, LinkSeconds &links, int &link) {
        if (!sends || bytes <= 0) return 0.0;
        const Tier tier = problem.tierBetween(stage.rank, problem.rankOf(other));
        const double seconds = sendSeconds(cluster, tier, bytes);
        if (problem.rankOf(other) == stage.rank) return seconds; // it stays where it is
        const LinkSeconds busy = linkSeconds(cluster, tier, bytes);
        waited += seconds;
        links.add(busy);
        sent.add(busy);
        link = problem.linkBetween(stage.rank, problem.rankOf(other));
        return seconds;
      };
      stage.sendForward = send(s + 1, out, rank.sends.waitedForward, rank.sends.linksForward, stage.linkForward);
      stage.sendBackward = send(s - 1, back, rank.sends.waitedBackward, rank.sends.linksBackward, stage.linkBackward);
      if (sends) {
        stage.bytesForward = out;
        stage.bytesBackward = back;
      }
      stage.heldBySends = holdBySends(cluster, sent, work);
      stage.forward = work.forward;
      stage.backwardInput = work.backwardInput;
      stage.backwardWeight = work.backwardWeight;
      stage.communication = work.communication;
      stage.communicationForward = work.communicationForward;
      stage.recompute = work.again;
      stage.reduction = state.hideable + state.exposed;
      stage.update = state.update;
      stages.push_back(stage);
      rank.buffers += transferBytes(problem, s, first, end);
      addPassing(s, first, end);
      rank.cost.add(state).add(work);
      keptOfStage.push_back(problem.kept(work));
      onHostOfStage.push_back(work.keptOnHost);
      nearOfStage.push_back(readAgainSoon(first, end));
    }
  }

  // A message that a stage sends past others, or to one of its own rank, may wait until that one comes to it, and its
  // gradient likewise: buffers for all microbatches in flight, where transferBytes() has two. All terms of a gradient
  // are received before they are added up.
  void addPassing(int stage, int first, int end) {
    const int rank = problem.rankOf(stage);
    for (size_t p = 0; p < layout.passing.size() && problem.ranks() > 1; ++p) {
      const UnitLayout::Passing &passing = layout.passing[p];
      if (passing.from < first || passing.from >= end) continue;
      const Flow &flow = model.flows[size_t(passing.flow)];
      std::set<int> readers;
      for (int unit : passing.readers)
        if (unit >= end) readers.insert(stageOfUnit(unit));
      double buffers = 0;
      for (int reader : readers) {
        const bool waits = reader > stage + 1 || problem.rankOf(reader) == rank;
        const double count = waits ? std::max(2.0, problem.live(stage)) : 2;
        buffers += count;
        if (flow.gradient)
          ranks[size_t(problem.rankOf(reader))].buffers +=
              (count - 2) * flow.gradientRatio * problem.activity->passing[p];
      }
      // Each reader sends a term of its gradient; transferBytes() has one of them.
      if (flow.gradient && readers.size() > 1)
        ranks[size_t(rank)].buffers +=
            double(readers.size() - 1) * problem.live(stage) * flow.gradientRatio * problem.activity->passing[p];
      if (buffers > 2) ranks[size_t(rank)].buffers += (buffers - 2) * problem.activity->passing[p];
    }
  }

  // Bytes that would leave for the host's memory and come back at once, were it not for other microbatches in between:
  // of the stage's last units, what has less than 1/offloadSpanDivisor of its operations behind it.
  double readAgainSoon(int first, int end) const {
    const double nodes = double(layout.units[size_t(end) - 1].end - layout.units[size_t(first)].first);
    double behind = 0, bytes = 0;
    for (int u = end; u-- > first && behind * tuning::offloadSpanDivisor < nodes;) {
      const Unit &unit = layout.units[size_t(u)];
      bytes += problem.activity->of(unit.kind, plan.recompute[size_t(u)]).keptOnHost;
      behind += double(unit.end - unit.first);
    }
    return bytes;
  }

  int stageOfUnit(int unit) const {
    auto next = std::upper_bound(plan.firstUnits.begin(), plan.firstUnits.end(), unit);
    return std::max(0, int(next - plan.firstUnits.begin()) - 1);
  }

  // When each rank is done with its last action.
  std::vector<double> simulatedEnds() {
    if (!problem.profile) return {ranks[0].cost.seconds() * microbatches};
    std::vector<StageTimes> times;
    double slowest = 0;
    times.reserve(stages.size());
    for (const StageDecision &stage : stages) times.push_back(timesOf(stage));
    for (const RankCosts &rank : ranks) slowest = std::max(slowest, rank.cost.seconds());
    std::optional<SimulatedSchedule> schedule = simulatedSchedule(problem, times);
    std::vector<double> ends(ranks.size(), 0.0);
    if (!schedule) return ends;
    if (followsTimes(problem.model->setting.schedule)) slots = slotsOf(schedule->table);
    Simulation simulation = simulate(schedule->table, times, meets);
    const bool isOneStep = problem.profile->isFlushed() || meets;
    const double simulated = microbatches - double(schedule->rest);
    const double share = cluster.device.coreShare;
    double turns = 1, pace = slowest; // parts of the times that are simulated; seconds of a further microbatch
    if (share < 1 && simulation.makespan > 0) {
      double mean = 0; // of a microbatch
      for (const RankCosts &rank : ranks) mean += rank.cost.seconds() / double(ranks.size());
      const int64_t count = problem.ranks();
      pace = leastOnSharedCores(cluster.device, count, slowest, mean);
      // Where steps run into each other the actions are those of one step, the makespan is what a further one adds.
      const double least = leastOnSharedCores(cluster.device, count, simulation.makespan, mean * simulated);
      turns = (isOneStep ? makespanOnSharedCores(simulation, share, constants::unfilledWaits) : least) /
              simulation.makespan;
    }
    for (size_t r = 0; r < ends.size(); ++r) {
      if (isOneStep)
        for (const ActionTime &action : simulation.actions[r]) ends[r] = std::max(ends[r], action.end);
      else // ranks are one after the other, all in the same step's time: its own work, and what all wait
        ends[r] = ranks[r].cost.seconds() * simulated + simulation.makespan - slowest * simulated;
      ends[r] = turns * ends[r] + pace * double(schedule->rest);
    }
    return ends;
  }

  const StageProblem &problem;
  const StagePlan &plan;
  const SplitModel &model;
  const Cluster &cluster;
  const UnitLayout &layout;
  double microbatches;
  std::vector<RankCosts> ranks;
  std::vector<StageDecision> stages;
  std::vector<TiedGradient> tied;
  std::vector<double> keptOfStage, onHostOfStage; // bytes of one microbatch
  std::vector<double> nearOfStage;                // of the latter, if the stage has no other microbatch meanwhile
  std::vector<double> slots; // by stage, of a table that follows the stages' times; else the profile says it
  bool meets;                // ranks wait for each other at a step's end, though nothing is flushed
};

} // namespace

StageTimes timesOf(const StageDecision &stage) {
  const double sends = stage.sendForward + stage.sendBackward, later = sends > 0 ? 1 + stage.heldBySends / sends : 1;
  return {stage.forward,
          stage.backwardInput,
          stage.backwardWeight,
          later * stage.sendForward,
          later * stage.sendBackward,
          stage.linkForward,
          stage.linkBackward};
}

StageTimes scheduleTimes(std::span<const StageTimes> stages) {
  return stages.empty() ? StageTimes{} : stages[stages.size() / 2];
}

StageTimes scheduleTimes(const std::vector<StageDecision> &stages) {
  if (stages.empty()) return {};
  return timesOf(stages[stages.size() / 2]);
}

std::optional<SimulatedSchedule> simulatedSchedule(const StageProblem &problem, std::span<const StageTimes> stages) {
  const Setting &setting = problem.model->setting;
  int64_t simulated = setting.microbatches;
  if (double(simulated) * double(stages.size()) * 3 > mostActions) {
    int64_t count = std::max<int64_t>(6, int64_t(mostActions / 3 / double(stages.size())) / problem.ranks());
    simulated = std::min(simulated, count * problem.ranks() + simulated % problem.ranks());
  }
  Result<PipelineSchedule> schedule = makeSchedule(setting.schedule, problem.ranks(), simulated, scheduleTimes(stages));
  if (!schedule) return std::nullopt;
  return SimulatedSchedule{std::move(*schedule), setting.microbatches - simulated};
}

PlanEvaluation evaluatePlan(const StageProblem &problem, const StagePlan &plan) {
  return PlanEvaluator(problem, plan).evaluate();
}

} // namespace cleave::planner
