#include "compiler/planner/explain/breakdown.h"
#include "compiler/planner/explain/collective_sums.h"
#include "runtime/base/names/folded_names.h"
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <ranges>
#include <set>

namespace cleave::planner {
namespace {

// The common beginning of the modules of all nodes in [first, end) that have one, cut where a module's name ends.
std::string commonModule(const DisplayNames &names, int first, int end) {
  std::string common;
  for (int i = first; i < end; ++i) {
    const std::string &module = names.moduleOf(i);
    if (module.empty()) continue;
    if (common.empty()) common = module;
    const size_t same = size_t(std::ranges::mismatch(common, module).in1 - common.begin());
    if (same == common.size() && (same == module.size() || module[same] == '.')) continue;
    common.resize(same);
    common.resize(std::min(common.find_last_of('.') == std::string::npos ? 0 : common.find_last_of('.'), same));
    if (common.empty()) return "";
  }
  return common;
}

// Repetitions of a block have one name. A recurring part without a weight is no block: halves of a norm that look
// alike.
std::vector<std::string> partsOfNodes(const DecidedModel &decided, const DisplayNames &names) {
  const Problem &problem = *decided.model.problem;
  const UnitLayout &layout = *decided.model.layout;
  std::vector<std::string> parts(problem.nodes.size());
  auto between = [&](int begin, int end) {
    if (begin >= end) return;
    auto flops = [&](int node) { return problem.nodes[size_t(node)].flops; };
    const int largest = std::ranges::max(std::views::iota(begin, end), {}, flops);
    const std::string &module = names.moduleOf(largest);
    const std::string part = module.empty() ? "near " + names.ofNode(largest) : module;
    for (int i = begin; i < end; ++i) parts[size_t(i)] = part;
  };
  int at = 0;
  for (const Repeat &repeat : decided.facts->repeats) {
    if (!layout.units[size_t(layout.unitOfNode[size_t(repeat.first)])].isBlock) continue;
    between(at, repeat.first);
    std::vector<std::string> modules;
    for (int first = repeat.first; first < repeat.end(); first += repeat.period)
      modules.push_back(commonModule(names, first, first + repeat.period));
    const bool areNamed = std::ranges::count(modules, "") == 0 && modules.front() != modules.back();
    const std::string part = areNamed ? names::foldedNames(modules)
                                      : fmt::format("{} blocks of {} operations from {}", repeat.count, repeat.period,
                                                    names.ofNode(repeat.first));
    for (int i = repeat.first; i < repeat.end(); ++i) parts[size_t(i)] = part;
    at = repeat.end();
  }
  between(at, int(problem.nodes.size()));
  return parts;
}

// Goes through what a step of all ranks does, one operation, flow and parameter at a time, each with the recomputation
// of its place.
class TimeLedger {
public:
  TimeLedger(const DecidedModel &decided, const std::vector<std::string> &parts)
      : evaluation(decided.evaluate()), problem(*decided.model.problem), decision(*decided.decision), decided(decided),
        model(decided.model), parts(parts), recomputeOfKind(size_t(model.layout->kinds)) {
    for (size_t u = 0; u < model.layout->units.size(); ++u)
      ++recomputeOfKind[size_t(model.layout->units[u].kind)][decided.plan.recompute[u]];
  }

  std::vector<TimePart> list() {
    addNodes();
    addFlows();
    addParameters();
    addStepSums();
    addWaiting();
    addHeld();
    hide();
    for (TimePart &row : rows) {
      row.computeSeconds /= double(model.setting.pp);
      row.communicationSeconds /= double(model.setting.pp);
      row.besideSeconds /= double(model.setting.pp);
    }
    return std::move(rows);
  }
  const PlanEvaluation evaluation;
  // The collectives that list() has met.
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
      CollectiveSink implied;
      const Cost price = nodePrice(model, variable, candidate).add(exchangePrice(model, variable, candidate, &implied));
      take(implied, 1 / double(variable.count));
      ++row(int(i), problem.nodes[i].op).count;
      TimePart &time = row(int(i), servedBy(int(i)));
      time.computeSeconds += price.compute() / double(variable.count);
      time.communicationSeconds += price.communication / double(variable.count);
    }
  }

  void addFlows() {
    for (const Flow &flow : model.flows) {
      int node = decided.facts->producers[size_t(flow.tensor)];
      if (node < 0) node = firstReader(flow.tensor);
      for (auto [how, part] : partsByRecompute(flow)) {
        model.setting.recompute = how;
        CollectiveSink implied;
        const Cost price = flowPrice(model, flow, producedLayout(model, flow, decided.choice),
                                     usesOf(model, flow, decided.choice), &implied);
        const double behind = take(implied, part);
        if (price.communication + behind <= 0 || node < 0) continue;
        TimePart &time = row(node, servedBy(node));
        time.communicationSeconds += part * price.communication;
        behindProducts.resize(rows.size());
        behindProducts[size_t(&time - rows.data())] += behind;
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
      CollectiveSink implied;
      const Cost price = homePrice(model, variable, size_t(decided.choice[v]), &implied);
      take(implied, copies);
      if (price.update + price.exposed + price.hideable <= 0) continue;
      TimePart &time = row(firstReader(variable.index), "optimizer");
      time.count += variable.count;
      time.computeSeconds += copies * price.update;
      time.communicationSeconds += copies * price.exposed;
      time.besideSeconds += copies * price.hideable;
    }
  }

  // Where the last unit of each rank is; what one rank does alone is done where the loss is. Then what ranks that have
  // the same parameter exchange.
  void addStepSums() {
    CollectiveSink implied;
    const StepPrice price = stepPrice(model, &implied);
    for (const ImpliedCollective &one : implied) take({one}, one.isOfEachRank ? double(model.setting.pp) : 1.0);
    const std::vector<Unit> &units = model.layout->units;
    std::map<int, int> lastNodes; // by rank
    for (size_t u = 0; u < units.size(); ++u) lastNodes[decided.rankOf(int(u))] = units[u].end - 1;
    const int last = decided.rankOf(int(units.size()) - 1);
    for (auto [rank, node] : lastNodes) {
      const double seconds = rank == last ? price.exposed : price.ofEachRank;
      if (seconds > 0) row(node, "optimizer").communicationSeconds += seconds;
    }
    for (const TiedGradient &tied : evaluation.tied)
      row(firstReader(model.variables[size_t(tied.variable)].index), "optimizer").communicationSeconds += tied.seconds;
  }

  // Ranks of a pipeline that have a parameter: several where it is tied over stages.
  int64_t copiesOf(int variable) const {
    std::set<int> ranks;
    for (const UnitLayout::SharedParameter &shared : model.layout->shared)
      if (shared.variable == variable)
        for (int unit : shared.units) ranks.insert(decided.rankOf(unit));
    return std::max<int64_t>(1, int64_t(ranks.size()));
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

  // A stage's messages hold up the collectives that it waits for.
  void addHeld() {
    for (size_t s = 0; s < evaluation.stages.size(); ++s) {
      const double held = evaluation.stages[s].heldBySends * double(model.setting.microbatches);
      const int first = model.layout->units[size_t(decided.plan.firstUnits[s])].first;
      if (held > 0) row(first, "waiting for links").communicationSeconds += held;
    }
  }

  // Compute has room for a part of what may hide behind it. The longer wait of passes for it is its own.
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
    for (size_t i = 0; i < behindProducts.size(); ++i) rows[i].besideSeconds += behindProducts[i];
  }

  // The collectives that a price implies stand for so many. Gives their seconds behind products.
  double take(const CollectiveSink &implied, double times) {
    double behind = 0;
    for (ImpliedCollective one : implied) {
      one.seconds *= times;
      one.times *= times;
      behind += one.behindProducts *= times;
      collectives.push_back(std::move(one));
    }
    return behind;
  }

  // A kernel's bytes are priced where they are read and written, which in 16 bits are its casts: they count as the
  // operation whose result they narrow, or which reads what they widen.
  const std::string &servedBy(int node) const {
    const int cluster = decided.facts->fused[size_t(node)].cluster;
    auto isOther = [&](int other) { return other >= 0 && decided.facts->fused[size_t(other)].cluster == cluster; };
    auto isCast = [&](int other) { return problem.nodes[size_t(other)].kind.form == dist::Form::Cast; };
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
  SplitModel model;                                      // with the recomputation of the node that is priced
  const std::vector<std::string> &parts;                 // by node
  std::vector<std::map<Recompute, int>> recomputeOfKind; // units of each kind, by what they compute again
  const std::string nowhere = "read by nothing";
  std::map<std::pair<std::string, std::string>, size_t> indices;
  std::vector<TimePart> rows;
  std::vector<double> behindProducts; // by row: seconds
};

// A parameter's or input's own name; else that of the node which makes it.
const std::string &nameOf(const DecidedModel &decided, int tensor) {
  const Problem &problem = *decided.model.problem;
  const int producer = decided.facts->producers[size_t(tensor)];
  return producer >= 0 ? problem.nodes[size_t(producer)].name : problem.tensors[size_t(tensor)].name;
}

// Each of several tensors that are moved together has its part of the bytes.
std::vector<MovedTensor> movedBy(const DecidedModel &decided, const ImpliedCollective &one, double bytes) {
  if (one.tensors.empty()) return {{"gradients' norm", 1, bytes}};
  const SplitModel &model = decided.model;
  auto sizeOf = [&](int tensor) {
    return model.localBytes(tensor) * (model.contextSplit[size_t(tensor)] ? double(model.setting.cp) : 1.0);
  };
  double all = 0;
  for (int tensor : one.tensors) all += sizeOf(tensor);
  std::vector<MovedTensor> moved;
  moved.reserve(one.tensors.size());
  for (int tensor : one.tensors)
    moved.push_back(
        {nameOf(decided, tensor), one.alike, one.tensors.size() == 1 ? bytes : bytes * sizeOf(tensor) / all});
  return moved;
}

void addTo(CollectiveSums &sums, const DecidedModel &decided, const ImpliedCollective &one, bool isHidden) {
  const Setting &setting = decided.model.setting;
  const dist::Axes axes = setting.namesOf(one.axes);
  const double turns = double(setting.cp - 1);
  const double bytes = one.bytes * one.times * (one.isOnRing ? turns / double(setting.cp) : 1.0);
  const std::vector<MovedTensor> tensors = movedBy(decided, one, bytes);
  if (one.isOnRing) // keys and values, each a shift a turn, of what one device has
    sums.add("shift", axes, one.why, {bytes, one.seconds, 2 * turns * one.times, false, one.forward, one.backward},
             tensors);
  else
    sums.add(name(one.collective), axes, one.why, {bytes, one.seconds, one.times, isHidden, one.forward, one.backward},
             tensors);
}

// The messages between stages, forward or backward.
class StageSends {
public:
  StageSends(const DecidedModel &decided, bool isBackward) : decided(decided), isBackward(isBackward) {}

  // Over the border before a unit, for every microbatch.
  void add(int border, double bytes, double seconds) {
    if (bytes <= 0) return;
    const SplitModel &model = decided.model;
    const double times = double(model.setting.microbatches);
    share.bytes += bytes * times;
    share.seconds += seconds * times;
    share.times += times;
    std::map<int, double> crossing; // bytes by flow
    double all = 0;
    for (int index : model.layout->crossings[size_t(border)])
      if (const Flow &flow = model.flows[size_t(index)]; !isBackward || flow.gradient)
        all += crossing[index] = sentBytes(model, flow, decided.choice);
    for (auto [index, one] : crossing) {
      const int tensor = lastBefore(model.flows[size_t(index)], model.layout->units[size_t(border)].first);
      auto [entry, isNew] = moved.try_emplace(index, MovedTensor{nameOf(decided, tensor), 0, 0});
      instances[index].insert(tensor);
      entry->second.alike = int64_t(instances[index].size());
      entry->second.bytes += bytes * times * one / all;
    }
  }
  void addTo(CollectiveSums &sums, const char *why) const {
    if (share.times == 0) return;
    std::vector<MovedTensor> tensors;
    tensors.reserve(moved.size());
    for (const auto &[flow, tensor] : moved) tensors.push_back(tensor);
    sums.add("send", {dist::pipelineAxis}, why, share, tensors);
  }

private:
  // The repetition that is made last before a node, among those that a flow stands for.
  int lastBefore(const Flow &flow, int node) const {
    const int first = decided.facts->producers[size_t(flow.tensor)];
    for (const Repeat &repeat : decided.facts->repeats)
      if (flow.count > 1 && repeat.first <= first && first < repeat.end()) {
        const int last = (repeat.end() - 1 - first) / repeat.period, before = (node - 1 - first) / repeat.period;
        const int made = first + std::min(last, before) * repeat.period;
        return decided.model.problem->nodes[size_t(made)].results[flow.result];
      }
    return flow.tensor;
  }

  const DecidedModel &decided;
  const bool isBackward;
  CollectiveSums::Share share{0, 0, 0, true};
  std::map<int, MovedTensor> moved;       // by flow
  std::map<int, std::set<int>> instances; // tensors
};

} // namespace

Breakdown breakdown(const DecidedModel &decided) {
  const DisplayNames names(*decided.model.problem);
  Breakdown result;
  result.parts = partsOfNodes(decided, names);
  TimeLedger ledger(decided, result.parts);
  result.time = ledger.list();
  CollectiveSums sums(names);
  for (const ImpliedCollective &one : ledger.collectives) {
    addTo(sums, decided, one, (one.isHideable && ledger.hiddenPart > 0.5) || one.behindProducts > one.seconds / 2);
    result.hiddenBehindProducts += one.behindProducts;
  }
  const PlanEvaluation &evaluation = ledger.evaluation;
  for (const TiedGradient &tied : evaluation.tied)
    sums.add("send", {dist::pipelineAxis}, "gradients of what several stages have are summed up",
             {tied.bytes, tied.seconds, 1, false},
             {{nameOf(decided, decided.model.variables[size_t(tied.variable)].index), 1, tied.bytes}});
  // The next stage of the same rank has its inputs on the device already.
  const std::vector<StageDecision> &stages = evaluation.stages;
  StageSends forward(decided, false), backward(decided, true);
  for (size_t s = 0; s + 1 < stages.size(); ++s) {
    if (stages[s].rank == stages[s + 1].rank) continue;
    const int border = decided.plan.firstUnits[s + 1];
    forward.add(border, stages[s].bytesForward, stages[s].sendForward);
    backward.add(border, stages[s + 1].bytesBackward, stages[s + 1].sendBackward);
  }
  forward.addTo(sums, "activations pass to the next stage");
  backward.addTo(sums, "gradients pass to the stage before");
  const Setting &setting = decided.model.setting;
  const double ranks = double(setting.pp);
  result.collectives = sums.list(ranks);
  result.tensorCollectives = sums.byTensor(ranks);
  result.hiddenBehindProducts /= ranks;
  double held = 0; // of all ranks
  for (const StageDecision &stage : stages) held += stage.heldBySends;
  result.contention = evaluation.contention + held * double(setting.microbatches) / ranks;
  return result;
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
