#include "compiler/planner/split/split_model.h"
#include "compiler/planner/split/laid_axes.h"
#include "compiler/planner/split/split_candidates.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <set>

namespace cleave::planner {

double SplitModel::localBytes(int tensor) const {
  double bytes = problem->tensors[size_t(tensor)].bytes() / laidParts[size_t(tensor)];
  if (contextSplit[size_t(tensor)]) bytes /= double(setting.cp);
  if (batchDims[size_t(tensor)] < 0) return bytes;
  return bytes * double(problem->batch) / double(setting.microbatches) / double(problem->samples) /
         double(setting.batchWays());
}

dist::Sharding SplitModel::parameterLayout(int tensor, Layout home) const {
  size_t t = size_t(tensor);
  dist::Sharding layout =
      laidHomes.empty() ? dist::Sharding::replicated(problem->tensors[t].dims.size()) : laidHomes[t];
  if (home >= 0) layout.dims[size_t(home)].push_back("tp");
  return layout;
}

double SplitModel::parameterBytes(int tensor, Layout home) const {
  return problem->tensors[size_t(tensor)].bytes() / laidParts[size_t(tensor)] / (home >= 0 ? double(setting.tp) : 1.0);
}

// A grid cuts a dimension that it has not cut yet, if it can; ZeRO else the largest.
int64_t SplitModel::zeroDimension(int tensor, Layout home) const {
  const int64_t ways = setting.zeroWays();
  if (ways <= 1) return -1;
  const std::vector<int64_t> &dims = problem->tensors[size_t(tensor)].dims;
  const dist::Mesh mesh = laidHomes.empty() ? dist::Mesh() : setting.mesh(); // a search asks this often
  std::pair<bool, int64_t> largest = {false, 0};                             // not cut yet, elements
  int64_t best = -1;
  for (size_t dim = 0; dim < dims.size(); ++dim) {
    std::pair<bool, int64_t> local = {false, dims[dim] / (Layout(dim) == home ? setting.tp : 1)};
    if (!laidHomes.empty()) {
      const dist::Axes &axes = laidHomes[size_t(tensor)].dims[dim];
      local = {setting.grid != TensorGrid::None && axes.empty(), local.second / mesh.groupSize(axes)};
    }
    if (local.second % ways != 0 || local <= largest) continue;
    largest = local;
    best = int64_t(dim);
  }
  return best;
}

// Only parameters with ZeRO-3 are gathered.
double SplitModel::gatheredBytes(int tensor, Layout home) const {
  return setting.zero >= 3 && zeroStage(tensor) < 3 ? 0 : parameterBytes(tensor, home);
}

double SplitModel::gradientBytesOf(int tensor, Layout home) const {
  const Tensor &parameter = problem->tensors[size_t(tensor)];
  if (!parameter.trainable) return 0;
  return parameterBytes(tensor, home) * double(parameter.gradientBytes) / double(parameter.elementBytes);
}

namespace {

// Fills the structure that all settings share with what depends on the setting.
class Builder {
public:
  Builder(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster, const Constraints &constraints,
          const Setting &setting, const SplitModel *like)
      : problem(problem), facts(facts), constraints(constraints), like(like), model(*facts.structure) {
    model.cluster = &cluster;
    model.setting = setting;
    model.gradientBytes /= double(setting.tp);
    model.stateBytes /= double(setting.tp);
    model.weightBytes /= double(setting.tp);
    model.presetSplitsWeights = constraints.tensorSplit == TensorSplit::Megatron;
    model.onlyAllReduces = model.presetSplitsWeights && constraints.sequenceSplit != SequenceSplit::On;
  }

  Result<SplitModel> build() {
    CLEAVE_RETURN_IF_ERROR(splitSequence());
    CLEAVE_RETURN_IF_ERROR(lay());
    model.gradientsPast.edit() = facts.waitingGradients.past([this](int tensor) {
      return model.localBytes(tensor) * model.partAtOnce(tensor) * facts.gradientRatios[size_t(tensor)];
    });
    double kept = 0; // of one microbatch, on a device that has its part of all that can be split
    for (Flow &flow : model.flows.edit()) {
      flow.bytes = model.localBytes(flow.tensor);
      if (flow.saved && flow.producer >= 0 && problem.tensors[size_t(flow.tensor)].kind == TensorKind::Activation)
        kept += flow.bytes * flow.count / double(model.setting.tp);
    }
    if (const Device &device = model.cluster->device; !device.caches.empty()) {
      const double passes = microbatchSeconds(); // a stage's, which has as many microbatches on their way as stages
      const int64_t onTheWay = std::min(model.setting.pp, model.setting.microbatches);
      model.stepSeconds = passes * double(model.setting.microbatches);
      model.keptSecondsPerByte = device.meanSecondsPerByte(2 * kept, passes * double(onTheWay));
      // Between a weight's two passes lie the layers after it, and from its backward pass to the next forward pass
      // those before it: their weights twice, and their gradients.
      model.weightSecondsPerByte =
          device.meanSecondsPerByte((2 * model.weightBytes + model.gradientBytes) / double(model.setting.pp), passes);
    }
    CLEAVE_RETURN_IF_ERROR(fillNodes());
    CLEAVE_RETURN_IF_ERROR(fillHomes());
    findStepSums();
    addBatchCollectives();
    addContextCollectives();
    addLaidExchanges(model, facts);
    return std::move(model);
  }

private:
  // How long the passes of a microbatch take, roughly, and so how long their data lies untouched: products at their
  // best rate and what elements take, split evenly over all devices.
  double microbatchSeconds() const {
    const Device &device = model.cluster->device;
    if (device.cacheHoldSeconds <= 0) return 0;
    const double rate = device.flopsAt(problem.precision) * device.computeEfficiency;
    double seconds = 0;
    for (const Node &node : problem.nodes)
      seconds += node.cheap ? 3 * node.flops * device.elementSeconds[size_t(node.kind.work)]
                            : (node.flops + node.backwardFlops) / rate;
    const double share = double(problem.batch) / double(problem.samples) / double(model.setting.devices());
    return device.computeFactor * seconds * share / double(model.setting.microbatches);
  }

  // A part of the samples (a slice of the batch) may not divide where the batch does.
  Status checkBatchFactor(size_t i) {
    int64_t factor = facts.batchFactors[i];
    if (factor < 0) return Status::ok();
    int64_t samples = problem.batch / model.setting.microbatches;
    int64_t size = problem.nodes[i].rule.factors[size_t(factor)].size * samples;
    if (size % problem.samples == 0 && size / problem.samples % model.setting.batchWays() == 0) return Status::ok();
    return {ErrorKind::Usage,
            fmt::format(
                "the samples of node '{}' ({} of {}) do not divide over the batch axes of mesh {} with {} microbatches",
                problem.nodes[i].name, problem.nodes[i].rule.factors[size_t(factor)].size, problem.samples,
                model.setting.mesh().str(), model.setting.microbatches)};
  }

  // Chooses the factor of each node that context parallelism splits. Ring attention splits positions; Ulysses splits
  // attention heads, and positions where the heads do not divide. An expensive node that cannot be split is an error. A
  // node of attention without heads, such as a mask, stays whole under Ulysses.
  Status splitSequence() {
    model.attentionSplit = constraints.attentionSplit;
    if (model.setting.cp == 1) return Status::ok();
    if (like && like->setting.cp == model.setting.cp) {
      model.contextFactors = like->contextFactors;
      model.contextByHeads = like->contextByHeads;
      model.contextSplit = like->contextSplit;
      return Status::ok();
    }
    std::vector<int64_t> &contextFactors = model.contextFactors.edit();
    std::vector<bool> &contextByHeads = model.contextByHeads.edit(), &contextSplit = model.contextSplit.edit();
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const Node &node = problem.nodes[i];
      auto canSplit = [&](int64_t factor, const std::vector<bool> &inParts) {
        return inParts[i] && node.rule.factors[size_t(factor)].size % model.setting.cp == 0;
      };
      bool wantsHeads = constraints.attentionSplit == AttentionSplit::Ulysses && facts.sequence.inAttention[i];
      int64_t positions = facts.sequence.positions[i], heads = facts.sequence.heads[i];
      int64_t &factor = contextFactors[i];
      contextByHeads[i] = wantsHeads && canSplit(heads, facts.canSplitHeads);
      if (contextByHeads[i])
        factor = heads;
      else if (!(wantsHeads && heads < 0) && canSplit(positions, facts.canSplitPositions))
        factor = positions;
      CLEAVE_RETURN_IF_ERROR(checkPositions(i));
      for (size_t r = 0; factor >= 0 && r < node.results.size(); ++r)
        if (indexes(node.rule.results[r], factor)) contextSplit[size_t(node.results[r])] = true;
      if (factor >= 0 || node.cheap || node.flops == 0 || node.flops < facts.expensiveFlops) continue;
      const int64_t length = positions < 0 ? 0 : node.rule.factors[size_t(positions)].size;
      std::string why = positions < 0 ? "it has no sequence"
                        : length % model.setting.cp != 0
                            ? fmt::format("its sequence of {} does not divide", length)
                            : fmt::format("its sequence of {} cannot be computed in parts", length);
      return {ErrorKind::Usage, fmt::format("cp={} cannot split node '{}' ({}): {}; choose another --mesh cp",
                                            model.setting.cp, node.name, node.op, why)};
    }
    return Status::ok();
  }

  // The operands of a node outside of attention have to lie over cp as the node is split itself: one that mixes
  // positions, such as an MLP along them, would have to be brought all of them, which is neither priced nor searched.
  Status checkPositions(size_t index) const {
    const Node &node = problem.nodes[index];
    const int64_t factor = model.contextFactors[index];
    if (factor < 0 || facts.sequence.inAttention[index]) return Status::ok();
    for (size_t o = 0; o < node.operands.size(); ++o) {
      const int producer = facts.producers[size_t(node.operands[o])];
      if (producer < 0 || facts.sequence.inAttention[size_t(producer)]) continue;
      const Node &made = problem.nodes[size_t(producer)];
      const int64_t lies = dimOf(made.rule, made.rule.results[facts.resultIndex(node.operands[o])],
                                 model.contextFactors[size_t(producer)]);
      if (lies >= 0 && lies != dimOf(node.rule, node.rule.operands[o], factor))
        return {ErrorKind::Usage,
                fmt::format("cp={} cannot split node '{}' ({}): it mixes the positions of '{}', and is "
                            "no attention; choose another --mesh cp",
                            model.setting.cp, node.name, node.op, made.name)};
    }
    return Status::ok();
  }

  Status lay() {
    model.laidParts.edit().assign(problem.tensors.size(), 1.0);
    model.sumsOverExperts.edit().assign(problem.tensors.size(), false);
    Result<std::vector<LaidAxis>> axes = layAxes(problem, facts, model.setting);
    if (!axes) return axes.status();
    model.laid = std::move(*axes);
    if (model.laid.empty()) return Status::ok();
    std::vector<dist::Sharding> layouts = laidLayouts(model, facts);
    for (size_t t = 0; t < layouts.size(); ++t)
      for (const LaidAxis &axis : model.laid)
        if (layouts[t].uses(axis.name)) model.laidParts.edit()[t] *= double(axis.size);
    model.laidHomes = std::move(layouts);
    return Status::ok();
  }

  Status fillNodes() {
    for (Variable &variable : model.variables.edit()) {
      if (variable.isHome) continue;
      size_t i = size_t(variable.index);
      CLEAVE_RETURN_IF_ERROR(checkBatchFactor(i));
      variable.candidates = nodeCandidates(problem, facts, *model.cluster, constraints, model, int(i));
      if (variable.candidates.empty())
        return {ErrorKind::Usage,
                fmt::format("no split of node '{}' ({}) gives the results their pinned layout on mesh {}",
                            problem.nodes[i].name, problem.nodes[i].op, model.setting.mesh().str())};
    }
    return Status::ok();
  }

  // A parameter may lie as any of its readers would want it without pins, which are of what they name alone.
  Status fillHomes() {
    Constraints unpinned = constraints;
    unpinned.pins.clear();
    std::map<int, std::vector<Candidate>> unpinnedOf; // by reader, which may read several parameters
    auto candidatesOf = [&](int reader) -> const std::vector<Candidate> & {
      const Variable &variable = model.variables[size_t(reader)];
      if (constraints.pins.empty()) return variable.candidates;
      auto [known, added] = unpinnedOf.try_emplace(reader);
      if (added) known->second = nodeCandidates(problem, facts, *model.cluster, unpinned, model, variable.index);
      return known->second;
    };
    std::vector<std::set<Layout>> homes(model.variables.size());
    for (const Flow &flow : model.flows) {
      if (flow.producer < 0 || !model.variables[size_t(flow.producer)].isHome) continue;
      std::set<Layout> &wanted = homes[size_t(flow.producer)];
      for (const Flow::Read &read : flow.reads)
        for (const Candidate &candidate : candidatesOf(read.variable))
          if (candidate.uses[read.operand].layout >= 0) wanted.insert(candidate.uses[read.operand].layout);
    }
    for (size_t v = 0; v < model.variables.size(); ++v) {
      Variable &variable = model.variables.edit()[v];
      if (!variable.isHome) continue;
      homes[v].insert(whole);
      const Tensor &tensor = problem.tensors[size_t(variable.index)];
      Layout pinned = whole;
      if (pinnedLayout(constraints, tensor, pinned)) {
        if (pinned >= 0 && (model.setting.tp == 1 || size_t(pinned) >= tensor.dims.size() ||
                            tensor.dims[size_t(pinned)] % model.setting.tp != 0))
          return {ErrorKind::Usage, fmt::format("parameter '{}' cannot be split over tp={} in dimension {} as pinned",
                                                tensor.name, model.setting.tp, int(pinned))};
        homes[v] = {pinned};
      }
      variable.homes.assign(homes[v].begin(), homes[v].end());
    }
    return Status::ok();
  }

  bool sumsSamples(int node) const {
    const int64_t factor = facts.batchFactors[size_t(node)];
    return factor >= 0 && problem.nodes[size_t(node)].rule.factors[size_t(factor)].kind == dist::Factor::Reduced;
  }

  void findStepSums() {
    for (int i = 0; i < int(problem.nodes.size()); ++i)
      for (int result : problem.nodes[size_t(i)].results)
        if (sumsSamples(i) && facts.readers[size_t(result)].empty()) model.stepSums.push_back(result);
  }

  // Operands whose sample dimension is not where the node wants it are gathered; results that sum over the samples are
  // reduced, and so are gradients of what all samples read.
  void addBatchCollectives() {
    if (model.setting.batchWays() <= 1) return;
    std::vector<bool> seen(problem.tensors.size(), false);
    for (Variable &variable : model.variables.edit()) {
      if (variable.isHome) continue;
      const Node &node = problem.nodes[size_t(variable.index)];
      const int64_t factor = facts.batchFactors[size_t(variable.index)];
      auto add = [&](Collective collective, int tensor, double forward, double backward, const char *why,
                     auto layoutOf) {
        for (Candidate &candidate : variable.candidates) {
          const double parts = layoutOf(candidate) >= 0 ? double(model.setting.tp) : 1;
          candidate.exchanges.push_back({.collective = collective,
                                         .group = {}, // exchangePrice() knows it
                                         .bytes = model.localBytes(tensor) / parts,
                                         .forward = forward,
                                         .backward = backward,
                                         .why = why,
                                         .tensors = {tensor, -1, -1, -1}});
        }
      };
      for (size_t o = 0; o < node.operands.size(); ++o) {
        const int tensor = node.operands[o];
        const int64_t dim = facts.batchDims[size_t(tensor)];
        const bool hasGradient = facts.needsGradient[size_t(tensor)];
        auto asRead = [o](const Candidate &candidate) { return candidate.uses[o].layout; };
        if (dim < 0) {
          const bool readByAll = factor >= 0 && hasGradient && !node.stopsGradient &&
                                 !facts.areWeights[size_t(tensor)] &&
                                 problem.tensors[size_t(tensor)].kind == TensorKind::Activation;
          if (!readByAll || seen[size_t(tensor)]) continue;
          seen[size_t(tensor)] = true;
          add(Collective::AllReduce, tensor, 0, 1, "gradients of what all samples read are summed up", asRead);
          continue;
        }
        const auto &factors = node.rule.operands[o][size_t(dim)];
        if (!factors.empty() && factors[0] == factor) continue;
        add(Collective::AllGather, tensor, 1, 0, "an operation needs all samples", asRead);
        if (hasGradient) add(Collective::ReduceScatter, tensor, 0, 1, "an operation needs all samples", asRead);
      }
      for (size_t r = 0; r < node.results.size() && sumsSamples(variable.index); ++r)
        if (!facts.readers[size_t(node.results[r])].empty()) // else stepPrice()
          add(Collective::AllReduce, node.results[r], 1, 0, "a result sums over the samples",
              [r](const Candidate &candidate) { return candidate.results[r]; });
    }
  }

  // Keys and values pass every device of a ring, and again with their gradients in the backward pass: the volume of an
  // all-gather, and of an all-gather and a reduce-scatter. Ulysses exchanges queries, keys, values and what comes out.
  void addContextCollectives() {
    const Setting &setting = model.setting;
    if (setting.cp == 1) return;
    const AxisSet axes = setOf({Axis::Sequence});
    const GroupShape group = setting.group(*model.cluster, axes);
    for (const AttentionNodes &attention : facts.sequence.attentions) {
      Variable &variable = model.variables.edit()[size_t(model.variableOfNode[size_t(attention.weigh)])];
      if (variable.index != attention.weigh) continue; // a repetition
      auto bytes = [&](int tensor) {
        return model.localBytes(tensor) * (model.contextSplit[size_t(tensor)] ? double(setting.cp) : 1.0);
      };
      const double travelling = bytes(attention.keys) + bytes(attention.values);
      std::vector<Exchange> exchanges;
      auto exchange = [&](Collective collective, double all, double forward, double backward,
                          std::array<int, 4> tensors, const char *why) {
        exchanges.push_back({collective, axes, group, all, forward, backward, why, false, false, tensors});
      };
      const std::array<int, 4> both = {attention.keys, attention.values, -1, -1};
      const size_t values = valueOperand(attention);
      const bool isRing = constraints.attentionSplit == AttentionSplit::Ring;
      if (isRing || !model.contextByHeads[size_t(attention.weigh)]) {
        const char *why = isRing ? "keys and values travel round the ring"
                                 : "keys and values are gathered: the heads do not divide (Ulysses)";
        exchange(Collective::AllGather, travelling, 1, isRing, both, why);
        exchange(Collective::ReduceScatter, travelling, 0, 1, both, why);
      } else {
        const int out = problem.nodes[size_t(attention.weigh)].results[0];
        exchange(Collective::AllToAll, travelling + bytes(attention.queries) + bytes(out), 1, 1,
                 {attention.queries, attention.keys, attention.values, out},
                 "from positions to heads and back (Ulysses)");
      }
      for (Candidate &candidate : variable.candidates) {
        // Heads that lie over tp travel between the devices that have the same ones.
        const double parts =
            candidate.uses[values].layout >= 0 && headsDivide(attention, values) ? double(setting.tp) : 1;
        for (Exchange exchange : exchanges) {
          exchange.bytes /= parts;
          candidate.exchanges.push_back(exchange);
        }
        if (!model.isOnRing(attention.weigh)) continue;
        // The keys and values that have come round, and in the backward pass the gradients that go on with them.
        const double passing = travelling / double(setting.cp) / parts;
        candidate.values += passing;
        candidate.gradients += 2 * passing;
      }
    }
  }

  // The operand of the product with the values that is not made of scores.
  size_t valueOperand(const AttentionNodes &attention) const {
    const std::vector<int> &operands = problem.nodes[size_t(attention.weigh)].operands;
    const int producer = operands.empty() ? -1 : facts.producers[size_t(operands[0])];
    return std::ranges::find(attention.weights, producer) != attention.weights.end() ? 1 : 0;
  }

  // Keys and values that several queries share (grouped queries) have fewer heads.
  bool headsDivide(const AttentionNodes &attention, size_t operand) const {
    const int used = problem.nodes[size_t(attention.weigh)].operands[operand];
    const double shared = problem.tensors[size_t(used)].bytes() / problem.tensors[size_t(attention.values)].bytes();
    const int64_t heads = facts.sequence.heads[size_t(attention.weigh)];
    const double count =
        heads < 0 ? 0 : double(problem.nodes[size_t(attention.weigh)].rule.factors[size_t(heads)].size);
    return heads >= 0 && std::fmod(count / shared, double(model.setting.tp)) == 0;
  }

  const Problem &problem;
  const ProblemFacts &facts;
  const Constraints &constraints;
  const SplitModel *like;
  SplitModel model;
};

// Repetitions of larger models that lie otherwise cost as the first one does: cutting as many units into stages would
// take minutes.
constexpr size_t mostUntied = 512;

// Do products of repeated blocks lie alike over the laid axes? On a cube two axes take turns from product to product:
// an odd number of products leaves the next repetition with them exchanged. Cheap work follows its readers, which
// behind the last repetition are others; that is no reason to price each by itself.
bool areLaidAlike(const Problem &problem, const std::vector<Repeat> &repeats, const std::vector<LaidAxis> &axes) {
  for (const LaidAxis &axis : axes)
    for (const Repeat &repeat : repeats)
      for (int i = repeat.first + repeat.period; i < repeat.end(); ++i)
        if (!problem.nodes[size_t(i)].cheap && axis.factors[size_t(i)] != axis.factors[size_t(i - repeat.period)])
          return false;
  return true;
}

} // namespace

Result<SplitModel> buildModel(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                              const Constraints &constraints, const Setting &setting, const SplitModel *like) {
  if (!facts.repeats.empty() && !setting.laidAxes().empty() && problem.nodes.size() <= mostUntied)
    if (Result<std::vector<LaidAxis>> axes = layAxes(problem, facts, setting); // else: said below
        axes && !areLaidAlike(problem, facts.repeats, *axes))
      return Builder(problem, gatherFacts(problem, cluster.device, constraints, false), cluster, constraints, setting,
                     like)
          .build();
  return Builder(problem, facts, cluster, constraints, setting, like).build();
}

} // namespace cleave::planner
