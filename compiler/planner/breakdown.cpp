#include "compiler/planner/breakdown.h"
#include "compiler/planner/collective_sums.h"
#include "compiler/planner/schedule/simulate.h"
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <set>

namespace cleave::planner {
namespace {

// So many points of memory over time are kept; of more, the fullest of each stretch.
constexpr size_t mostPoints = 64;

// What all names in [first, end) begin with, cut where a part of a name ends.
std::string commonPath(const Problem &problem, int first, int end) {
  std::string prefix = problem.nodes[size_t(first)].name;
  for (int i = first; i < end; ++i) {
    const std::string &name = problem.nodes[size_t(i)].name;
    size_t same = size_t(std::mismatch(prefix.begin(), prefix.end(), name.begin(), name.end()).first - prefix.begin());
    prefix.resize(same);
  }
  size_t cut = prefix.find_last_of("/.");
  return cut == std::string::npos ? "" : prefix.substr(0, cut);
}

// A name for every node's part; repetitions of a block have one.
std::vector<std::string> partsOfNodes(const Problem &problem, const std::vector<Repeat> &repeats) {
  std::vector<std::string> parts(problem.nodes.size());
  auto between = [&](int begin, int end) {
    if (begin >= end) return;
    int largest = begin;
    for (int i = begin; i < end; ++i)
      if (problem.nodes[size_t(i)].flops > problem.nodes[size_t(largest)].flops) largest = i;
    for (int i = begin; i < end; ++i) parts[size_t(i)] = "around " + problem.nodes[size_t(largest)].name;
  };
  int at = 0;
  for (const Repeat &repeat : repeats) {
    between(at, repeat.first);
    std::string name = commonPath(problem, repeat.first, repeat.first + repeat.period);
    std::string last = commonPath(problem, repeat.end() - repeat.period, repeat.end());
    if (name.empty() || last.empty())
      name = fmt::format("block of {} operations", repeat.period);
    else if (last != name)
      name += " .. " + last;
    for (int i = repeat.first; i < repeat.end(); ++i) parts[size_t(i)] = fmt::format("{} ({} x)", name, repeat.count);
    at = repeat.end();
  }
  between(at, int(problem.nodes.size()));
  return parts;
}

// Goes through what a step of all ranks does, one operation, flow and parameter at a time, each with the recomputation
// of its place.
class TimeLedger {
public:
  explicit TimeLedger(const DecidedModel &decided)
      : evaluation(decided.evaluate()), problem(*decided.model.problem), decision(*decided.decision), decided(decided),
        model(decided.model), parts(partsOfNodes(problem, decided.facts->repeats)),
        recomputeOfKind(size_t(model.layout->kinds)) {
    for (size_t u = 0; u < model.layout->units.size(); ++u)
      ++recomputeOfKind[size_t(model.layout->units[u].kind)][decided.plan.recompute[u]];
  }

  std::vector<TimePart> list() {
    addNodes();
    addFlows();
    addParameters();
    addTied();
    addWaiting();
    hide();
    for (TimePart &row : rows) {
      row.computeSeconds /= double(model.setting.pp);
      row.communicationSeconds /= double(model.setting.pp);
      row.besideSeconds /= double(model.setting.pp);
    }
    return std::move(rows);
  }
  const PlanEvaluation evaluation;
  // What list() has met.
  CollectiveSink collectives;
  double hiddenPart = 0; // of what may hide

private:
  TimePart &row(int node, const std::string &op) {
    const std::string &part = node >= 0 ? parts[size_t(node)] : nowhere;
    auto [found, isNew] = indices.try_emplace({part, op}, rows.size());
    if (isNew) rows.push_back({part, op});
    return rows[found->second];
  }

  void addNodes() {
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const auto v = size_t(model.variableOfNode[i]), candidate = size_t(decided.choice[v]);
      const Variable &variable = model.variables[v];
      model.setting.recompute = decision.nodes[i].recompute;
      Price price = nodePrice(model, variable, candidate);
      price += exchangePrice(model, variable, candidate, &collectives);
      scaleNew(1 / double(variable.count));
      ++row(int(i), problem.nodes[i].op).count;
      TimePart &time = row(int(i), servedBy(int(i)));
      time.computeSeconds += (price.forward + price.backward) / double(variable.count);
      time.communicationSeconds += price.exposed / double(variable.count);
    }
  }

  void addFlows() {
    for (const Flow &flow : model.flows) {
      int node = decided.facts->producers[size_t(flow.tensor)];
      if (node < 0) node = firstReader(flow.tensor);
      for (auto [how, part] : partsByRecompute(flow)) {
        model.setting.recompute = how;
        Price price = flowPrice(model, flow, producedLayout(model, flow, decided.choice),
                                usesOf(model, flow, decided.choice), &collectives);
        scaleNew(part);
        if (price.exposed <= 0 || node < 0) continue;
        row(node, servedBy(node)).communicationSeconds += part * price.exposed;
      }
    }
  }

  // A flow stands for all repetitions of a block: the part of them that is computed again in each way.
  std::map<Recompute, double> partsByRecompute(const Flow &flow) const {
    std::map<Recompute, double> parts;
    double all = 0;
    for (const UnitShare &share : flow.shares)
      for (auto [how, units] : recomputeOfKind[size_t(share.kind)]) {
        const double here = double(share.count * units) / double(model.layout->sizeOfKind[size_t(share.kind)]);
        parts[how] += here;
        all += here;
      }
    if (all <= 0) return {{decision.recompute, 1.0}};
    for (auto &[how, part] : parts) part /= all;
    return parts;
  }

  void addParameters() {
    for (size_t v = 0; v < model.variables.size(); ++v) {
      const Variable &variable = model.variables[v];
      if (!variable.isHome) continue;
      const double copies = double(copiesOf(int(v)));
      Price price = homePrice(model, variable, size_t(decided.choice[v]), &collectives);
      scaleNew(copies);
      if (price.update + price.exposed + price.hideable <= 0) continue;
      TimePart &time = row(firstReader(variable.index), "optimizer");
      time.count += variable.count;
      time.computeSeconds += copies * price.update;
      time.communicationSeconds += copies * price.exposed;
      time.besideSeconds += copies * price.hideable;
    }
    const Price ofStep = stepPrice(model, &collectives);
    scaleNew(1);
    if (ofStep.exposed > 0) row(model.layout->units.back().end - 1, "optimizer").communicationSeconds += ofStep.exposed;
  }

  // Ranks of a pipeline that have a parameter: several where it is tied over stages.
  int64_t copiesOf(int variable) const {
    const StageProblem stages = decided.stages();
    std::set<int> ranks;
    for (const UnitLayout::SharedParameter &shared : model.layout->shared)
      for (int unit : shared.variable == variable ? shared.units : std::vector<int>{}) {
        auto next = std::ranges::upper_bound(decided.plan.firstUnits, unit);
        ranks.insert(stages.rankOf(std::max(0, int(next - decided.plan.firstUnits.begin()) - 1)));
      }
    return std::max<int64_t>(1, int64_t(ranks.size()));
  }

  void addTied() {
    for (const TiedGradient &tied : evaluation.tied)
      row(firstReader(model.variables[size_t(tied.variable)].index), "optimizer").communicationSeconds += tied.seconds;
  }

  // The device is through with a unit before the host has handed the next one over.
  void addWaiting() {
    const std::vector<Unit> &units = model.layout->units;
    for (size_t u = 0; u < units.size(); ++u) {
      double waiting = decided.activity.of(units[u].kind, decided.plan.recompute[u]).waiting;
      if (waiting <= 0) continue;
      TimePart &time = row(units[u].first, "waiting for the host");
      ++time.count;
      time.computeSeconds += waiting * double(model.setting.microbatches);
    }
  }

  // Of what may hide behind compute there is room for a part. What passes wait longer for it is its own.
  void hide() {
    double hideable = 0;
    for (const TimePart &time : rows) hideable += time.besideSeconds;
    const double hidden = evaluation.predicted.hiddenCommunicationSeconds * double(model.setting.pp);
    if (hideable > 0) hiddenPart = std::min(1.0, hidden / hideable);
    const double held = hideable > 0 ? evaluation.contention * double(model.setting.pp) / hideable : 0;
    for (TimePart &time : rows) {
      time.communicationSeconds += (1 - hiddenPart + held) * time.besideSeconds;
      time.besideSeconds *= hiddenPart;
    }
  }

  // Of the collectives that the last price has: they stand for so many.
  void scaleNew(double times) {
    for (; scaled < collectives.size(); ++scaled) {
      collectives[scaled].seconds *= times;
      collectives[scaled].times *= times;
    }
  }

  // A kernel's bytes are priced where they are read and written, which in 16 bits are its casts: they count as the
  // operation whose result they narrow, or which reads what they widen.
  const std::string &servedBy(int node) const {
    const int cluster = decided.facts->fused[size_t(node)].cluster;
    auto isOther = [&](int other) { return other >= 0 && decided.facts->fused[size_t(other)].cluster == cluster; };
    auto isCast = [&](int other) { return problem.nodes[size_t(other)].op == "Cast"; };
    int before = node, after = node;
    while (cluster >= 0 && isCast(before)) {
      const int producer = decided.facts->producers[size_t(problem.nodes[size_t(before)].operands[0])];
      if (!isOther(producer)) break;
      before = producer;
    }
    while (cluster >= 0 && isCast(before) && isCast(after)) {
      const auto &readers = decided.facts->readers[size_t(problem.nodes[size_t(after)].results[0])];
      auto reader = std::ranges::find_if(readers, [&](const auto &read) { return isOther(read.first); });
      if (reader == readers.end()) break;
      after = reader->first;
    }
    return problem.nodes[size_t(isCast(before) ? after : before)].op;
  }

  int firstReader(int tensor) const {
    const auto &readers = decided.facts->readers[size_t(tensor)];
    return readers.empty() ? -1 : readers[0].first;
  }

  const Problem &problem;
  const Decision &decision;
  const DecidedModel &decided;
  SplitModel model; // with the recomputation of the node that is priced
  std::vector<std::string> parts;
  std::vector<std::map<Recompute, int>> recomputeOfKind; // units of each kind, by what they compute again
  const std::string nowhere = "read by nothing";
  std::map<std::pair<std::string, std::string>, size_t> indices;
  std::vector<TimePart> rows;
  size_t scaled = 0; // collectives that are
};

void addTo(CollectiveSums &sums, const Setting &setting, const ImpliedCollective &one, bool isHidden) {
  const dist::Axes axes = setting.namesOf(one.axes);
  if (one.isOnRing) { // keys and values, each a shift a turn, of what one device has
    const double turns = double(setting.cp - 1);
    sums.add("shift", axes, one.why,
             {one.bytes * turns / double(setting.cp) * one.times, one.seconds, 2 * turns * one.times, false});
  } else
    sums.add(name(one.collective), axes, one.why, {one.bytes * one.times, one.seconds, one.times, isHidden});
}

// The fullest point of each stretch of time.
std::vector<MemoryPoint> thinned(std::vector<MemoryPoint> points) {
  if (points.size() <= mostPoints) return points;
  std::vector<MemoryPoint> result;
  for (size_t i = 0; i < mostPoints; ++i) {
    auto begin = points.begin() + long(i * points.size() / mostPoints);
    auto end = points.begin() + long((i + 1) * points.size() / mostPoints);
    result.push_back(*std::max_element(
        begin, end, [](const MemoryPoint &a, const MemoryPoint &b) { return a.memory.total() < b.memory.total(); }));
  }
  return result;
}

// Without pipeline: all units forward, then backward, for each microbatch alike. Room for what is computed again is
// that of the unit that needs most, as in the estimate.
std::vector<MemoryPoint> plainTimeline(const DecidedModel &decided, const MemoryBreakdown &whole) {
  const std::vector<Unit> &units = decided.model.layout->units;
  std::vector<MemoryPoint> points;
  double seconds = 0, kept = 0;
  UnitMemory work;
  for (size_t u = 0; u < units.size(); ++u) work += decided.activity.of(units[u].kind, decided.plan.recompute[u]);
  auto add = [&](double transient) {
    MemoryPoint point{seconds, whole};
    point.memory.activations = kept + work.passing() + transient;
    points.push_back(point);
  };
  for (int64_t microbatch = 0; microbatch < decided.model.setting.microbatches; ++microbatch) {
    for (size_t u = 0; u < units.size(); ++u) {
      const UnitActivity &unit = decided.activity.of(units[u].kind, decided.plan.recompute[u]);
      seconds += unit.forward;
      kept += unit.kept;
      add(0);
    }
    for (size_t u = units.size(); u-- > 0;) {
      const UnitActivity &unit = decided.activity.of(units[u].kind, decided.plan.recompute[u]);
      seconds += unit.backwardInput + unit.backwardWeight;
      add(work.transient);
      kept -= unit.kept;
    }
  }
  return points;
}

// Of a pipeline: a rank's stages keep a microbatch from its forward to the end of its backward. Slots that nothing is
// in are not counted: where a rank has several stages, or half backward passes, they are not all full at once.
Result<std::vector<MemoryPoint>> rankTimeline(const DecidedModel &decided, const PlanEvaluation &evaluation, int rank) {
  const SplitModel &model = decided.model;
  std::vector<StageTimes> times;
  for (const StageDecision &stage : evaluation.stages)
    times.push_back({stage.forward, stage.backwardInput, stage.backwardWeight, stage.sendForward, stage.sendBackward});
  Result<PipelineSchedule> schedule =
      makeSchedule(model.setting.schedule, int(model.setting.pp), model.setting.microbatches, times[times.size() / 2]);
  if (!schedule) return schedule.status();
  Simulation simulation = simulate(*schedule, times);
  // Where ranks take turns on cores a step is shorter than what is simulated.
  const double turns = std::min(1.0, evaluation.predicted.stepSeconds / simulation.makespan);
  std::vector<double> kept(times.size(), 0.0), held = kept, ofLast = kept;
  UnitMemory work; // of the rank
  const std::vector<Unit> &units = model.layout->units;
  for (size_t s = 0; s < times.size(); ++s) {
    int end = s + 1 < times.size() ? decided.plan.firstUnits[s + 1] : int(units.size());
    for (int u = decided.plan.firstUnits[s]; u < end; ++u) {
      const UnitActivity &unit = decided.activity.of(units[size_t(u)].kind, decided.plan.recompute[size_t(u)]);
      kept[s] += unit.kept;
      held[s] += unit.held;
      ofLast[s] += unit.keptOfLast;
      if (evaluation.stages[s].rank == rank) work += unit;
    }
  }
  MemoryBreakdown whole = evaluation.stages[0].memory;
  for (const StageDecision &stage : evaluation.stages)
    if (stage.rank == rank) whole = stage.memory;
  std::vector<MemoryPoint> points;
  double live = 0;
  const auto &row = schedule->rows[size_t(rank)];
  for (size_t i = 0; i < row.size(); ++i) {
    size_t stage = size_t(row[i].stage);
    double bytes = kept[stage] + (row[i].microbatch + 1 == schedule->microbatches ? ofLast[stage] : 0);
    if (row[i].kind == ActionKind::Forward) live += bytes;
    if (row[i].kind == ActionKind::BackwardInput) live += held[stage];
    bool isBackward = row[i].kind == ActionKind::Backward || row[i].kind == ActionKind::BackwardInput;
    MemoryPoint point{turns * simulation.actions[size_t(rank)][i].end, whole};
    point.memory.activations = live + work.passing() + (isBackward ? work.transient : 0);
    points.push_back(point);
    if (row[i].kind == ActionKind::Backward) live -= bytes;
    if (row[i].kind == ActionKind::BackwardWeight) live -= bytes + held[stage];
  }
  return points;
}

} // namespace

std::vector<CollectiveTotal> collectivesOf(const DecidedModel &decided) {
  TimeLedger ledger(decided);
  ledger.list();
  CollectiveSums sums;
  for (const ImpliedCollective &one : ledger.collectives)
    addTo(sums, decided.model.setting, one, one.isHideable && ledger.hiddenPart > 0.5);
  const PlanEvaluation &evaluation = ledger.evaluation;
  for (const TiedGradient &tied : evaluation.tied)
    sums.add("send", {"pp"}, "gradients of what several stages have are summed up",
             {tied.bytes, tied.seconds, 1, false});
  const double microbatches = double(decided.model.setting.microbatches);
  // What the next stage of the same rank gets is on the device already.
  const std::vector<StageDecision> &stages = evaluation.stages;
  auto send = [&](size_t from, size_t to, double bytes, double seconds, const char *why) {
    if (bytes > 0 && stages[from].rank != stages[to].rank)
      sums.add("send", {"pp"}, why, {bytes * microbatches, seconds * microbatches, microbatches, true});
  };
  for (size_t s = 0; s + 1 < stages.size(); ++s) {
    send(s, s + 1, stages[s].bytesForward, stages[s].sendForward, "activations pass to the next stage");
    send(s + 1, s, stages[s + 1].bytesBackward, stages[s + 1].sendBackward, "gradients pass to the stage before");
  }
  return sums.list(double(decided.model.setting.pp));
}

std::vector<TimePart> timeParts(const DecidedModel &decided) { return TimeLedger(decided).list(); }

Result<std::vector<MemoryPoint>> memoryOverTime(const DecidedModel &decided) {
  PlanEvaluation evaluation = decided.evaluate();
  if (decided.model.setting.pp == 1) return thinned(plainTimeline(decided, evaluation.predicted.memory));
  int rank = 0;
  double most = 0;
  for (const StageDecision &stage : evaluation.stages)
    if (stage.memory.total() > most) {
      most = stage.memory.total();
      rank = stage.rank;
    }
  Result<std::vector<MemoryPoint>> points = rankTimeline(decided, evaluation, rank);
  if (!points) return points.status();
  return thinned(std::move(*points));
}

Result<std::vector<Sensitivity>> sensitivities(const DecidedModel &decided) {
  const Cluster &cluster = *decided.model.cluster;
  const std::pair<const char *, std::function<void(Cluster &)>> changes[] = {
      {"compute",
       [](Cluster &c) {
         for (auto &[precision, flops] : c.device.flops) flops *= 2;
         for (double &seconds : c.device.elementSeconds) seconds /= 2;
       }},
      {"memory bandwidth",
       [](Cluster &c) {
         c.device.memoryBandwidth *= 2;
         for (CacheLevel &level : c.device.caches) level.bandwidth *= 2;
       }},
      {"bandwidth inside a node",
       [](Cluster &c) {
         c.node.bandwidth *= 2;
         c.node.cacheBandwidth *= 2;
       }},
      {"network bandwidth", [](Cluster &c) {
         c.network.bandwidth *= 2;
         for (NetworkLevel &level : c.levels) level.bandwidth *= 2;
       }}};
  std::vector<Sensitivity> rows;
  for (const auto &[what, change] : changes) {
    if (std::string(what) == "network bandwidth" && cluster.nodes == 1) continue;
    Cluster better = cluster;
    change(better);
    Result<DecidedModel> there = decided.on(better);
    if (!there) return there.status();
    rows.push_back({what, there->evaluate().predicted.stepSeconds});
  }
  return rows;
}

} // namespace cleave::planner
