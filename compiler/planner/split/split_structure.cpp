// The common part of every setting's model: which nodes are decided together, which tensors flow between them, and in
// which units of pipeline stages they stand.
#include "compiler/planner/facts/gradients.h"
#include "compiler/planner/facts/megatron.h"
#include "compiler/planner/facts/sequence.h"
#include "compiler/planner/facts/stage_units.h"
#include "compiler/planner/split/laid_axes.h"
#include "compiler/planner/split/split_candidates.h"
#include "compiler/tuning.h"
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace cleave::planner {
namespace {

// Pins and batch factors that differ between repetitions forbid tying them together.
bool areAlike(const ProblemFacts &facts, const Constraints &constraints, const Repeat &repeat) {
  auto signature = [&](int index) {
    const Node &node = facts.problem.nodes[size_t(index)];
    std::vector<int64_t> values = {facts.batchFactors[size_t(index)], facts.sequence.positions[size_t(index)],
                                   facts.sequence.heads[size_t(index)]};
    for (const std::vector<int> *tensors : {&node.operands, &node.results})
      for (int tensor : *tensors) {
        Layout layout = whole;
        const bool isPinned = pinnedLayout(constraints, facts.problem.tensors[size_t(tensor)], layout);
        values.push_back(isPinned ? layout : -100);
        values.push_back(facts.sequenceDims[size_t(tensor)]);
      }
    return values;
  };
  for (int i = repeat.first + repeat.period; i < repeat.end(); ++i)
    if (signature(i) != signature(i - repeat.period)) return false;
  return true;
}

class StructureBuilder {
public:
  StructureBuilder(const Constraints &constraints, const ProblemFacts &facts)
      : problem(facts.problem), constraints(constraints), facts(facts), layout(std::make_shared<UnitLayout>()) {
    model.problem = &problem;
    model.batchDims = facts.batchDims;
    model.batchFactors = facts.batchFactors;
    model.contextFactors.edit().assign(problem.nodes.size(), -1);
    model.contextByHeads.edit().assign(problem.nodes.size(), false);
    model.contextSplit.edit().assign(problem.tensors.size(), false);
  }

  std::shared_ptr<const SplitModel> build() {
    layOutUnits();
    model.segments = findSegments(facts, layout->units, layout->unitOfNode, facts.sequence, constraints.recomputesAll);
    model.segments.activations = findActivationsAgain(facts, facts.kept, facts.madeAgain, model.segments.segmentOf);
    groupUnits();
    addNodes();
    addHomes();
    addFlows();
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const Node &node = problem.nodes[i];
      layout->flops += node.flops + node.backwardFlops;
      if (node.cheap || facts.batchFactors[i] < 0) continue;
      layout->heavyFlops += node.flops;
      if (!node.stopsGradient && anyIn(facts.needsGradient, node.operands)) layout->heavyFlops += node.backwardFlops;
    }
    for (const Tensor &tensor : problem.tensors) {
      if (tensor.kind == TensorKind::Parameter) model.weightBytes += tensor.bytes();
      if (!tensor.trainable) continue;
      const double elements = double(tensor.elements()), gradient = double(tensor.gradientBytes);
      model.gradientBytes += elements * gradient;
      model.stateBytes += elements * (gradient + double(tensor.elementBytes) + double(tensor.optimizerBytes));
    }
    model.layout = layout;
    return std::make_shared<SplitModel>(std::move(model));
  }

private:
  void layOutUnits() {
    layout->units = findUnits(facts, facts.repeats, facts.cuts);
    std::vector<int> starts;
    for (const Unit &unit : layout->units) {
      starts.push_back(unit.first);
      layout->kinds = std::max(layout->kinds, unit.kind + 1);
      layout->sizeOfKind.resize(size_t(layout->kinds));
      ++layout->sizeOfKind[size_t(unit.kind)];
    }
    layout->unitOfNode = stagesOfNodes(problem, starts);
    layout->crossings.resize(layout->units.size() + 1);
  }

  // Kinds of units that share a segment, and those that share another one with one of them.
  void groupUnits() {
    std::vector<int> group(size_t(layout->kinds));
    std::iota(group.begin(), group.end(), 0);
    std::map<int, int> unitOfSegment;
    std::vector<bool> shares(size_t(layout->kinds), false);
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const int segment = segmentOf(int(i)), unit = layout->unitOfNode[i];
      if (segment < 0) continue;
      const int first = unitOfSegment.try_emplace(segment, unit).first->second;
      if (first == unit) continue;
      const int kind = layout->units[size_t(unit)].kind, other = layout->units[size_t(first)].kind;
      shares[size_t(kind)] = shares[size_t(other)] = true;
      if (const int from = group[size_t(kind)], to = group[size_t(other)]; from != to)
        std::ranges::replace(group, from, to);
    }
    for (size_t kind = 0; kind < group.size(); ++kind) layout->togetherAgain.push_back(shares[kind] ? group[kind] : -1);
  }

  void share(std::vector<UnitShare> &shares, int unit) {
    int kind = layout->units[size_t(unit)].kind;
    for (UnitShare &one : shares)
      if (one.kind == kind) {
        ++one.count;
        return;
      }
    shares.push_back({kind, 1});
  }

  void addNodes() {
    model.variableOfNode.edit().resize(problem.nodes.size());
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      if (const Place &at = facts.places[i]; at.repetition > 0) {
        const int first = int(i) - at.repetition * facts.repeats[size_t(at.run)].period;
        model.variableOfNode.edit()[i] = model.variableOfNode[size_t(first)];
        ++model.variables.edit()[size_t(model.variableOfNode[i])].count;
      } else {
        Variable variable;
        variable.index = int(i);
        variable.inSegment = segmentOf(int(i)) >= 0 && anyIn(model.segments.isNeeded, problem.nodes[i].results);
        variable.inAttention = model.segments.isAttention[i];
        variable.inActivations = model.segments.activations[i].computes;
        model.variableOfNode.edit()[i] = int(model.variables.size());
        model.variables.edit().push_back(std::move(variable));
      }
      share(model.variables.edit()[size_t(model.variableOfNode[i])].shares, layout->unitOfNode[i]);
    }
  }

  void addHomes() {
    model.variableOfTensor.edit().assign(problem.tensors.size(), -1);
    std::map<std::vector<std::pair<int, size_t>>, int> tied; // by the first repetition's reads
    for (size_t t = 0; t < problem.tensors.size(); ++t) {
      if (problem.tensors[t].kind != TensorKind::Parameter) continue;
      std::vector<std::pair<int, size_t>> reads;
      bool canTie = !facts.readers[t].empty();
      int instance = -1, run = -1;
      for (auto [node, operand] : facts.readers[t]) {
        const Place &at = facts.places[size_t(node)];
        canTie = canTie && at.run >= 0 && (instance < 0 || (instance == at.repetition && run == at.run));
        instance = at.repetition;
        run = at.run;
        reads.emplace_back(model.variableOfNode[size_t(node)], operand);
      }
      auto [found, isNew] = canTie ? tied.try_emplace(reads, int(model.variables.size())) : std::pair(tied.end(), true);
      if (isNew) {
        Variable variable;
        variable.isHome = true;
        variable.index = int(t);
        variable.readBack = facts.readBack[t];
        model.variableOfTensor.edit()[t] = int(model.variables.size());
        model.variables.edit().push_back(std::move(variable));
      } else {
        model.variableOfTensor.edit()[t] = found->second;
        Variable &variable = model.variables.edit()[size_t(found->second)];
        ++variable.count;
        variable.readBack += facts.readBack[t];
      }
      std::set<int> units;
      for (auto [node, operand] : facts.readers[t]) units.insert(layout->unitOfNode[size_t(node)]);
      if (units.size() <= 1)
        share(model.variables.edit()[size_t(model.variableOfTensor[t])].shares, units.empty() ? 0 : *units.begin());
      else
        layout->shared.push_back({model.variableOfTensor[t], {units.begin(), units.end()}});
    }
  }

  // Per node: the commands that both passes have behind it, and of all of them together.
  std::pair<std::vector<double>, double> commandsBehind() const {
    std::vector<double> behind(problem.nodes.size());
    double sum = 0;
    for (size_t i = problem.nodes.size(); i-- > 0;) {
      behind[i] = sum;
      const Node &node = problem.nodes[i];
      const double gradients = double(std::ranges::count_if(
          node.operands, [&](int tensor) { return !node.stopsGradient && facts.needsGradient[size_t(tensor)]; }));
      sum += node.cheap ? facts.fused[i].kernels * (gradients > 0 ? 2 : 1) : 1 + gradients;
    }
    return {behind, sum};
  }

  // The same where segments are computed again, as parts of as many: behind the node the forward pass to the end of its
  // segment, and all four passes (forward, again, and as two more) of what lies behind that.
  std::vector<double> commandsBehindAgain(const std::vector<double> &behind) const {
    std::vector<double> again(behind), ofEnd(behind);
    for (size_t i = behind.size(); i-- > 0;) {
      const int node = int(i);
      if (i + 1 < behind.size() && segmentOf(node) >= 0 && segmentOf(node + 1) == segmentOf(node))
        ofEnd[i] = ofEnd[i + 1];
      again[i] = ofEnd[i] + (behind[i] - ofEnd[i]) / 4;
    }
    return again;
  }

  void addFlows() {
    std::map<std::tuple<FlowKey, double, int64_t, int64_t, int64_t>, size_t> tied;
    const auto [behind, all] = commandsBehind();
    const std::vector<double> behindAgain = commandsBehindAgain(behind);
    const std::vector<bool> isAtHand = atHandEverywhere();
    std::vector<bool> savedForSlice(problem.tensors.size(), false);
    for (size_t t = 0; t < problem.tensors.size(); ++t)
      if (const int base = baseOf(int(t)); facts.kept[t] && base != int(t)) savedForSlice[size_t(base)] = true;
    for (size_t t = 0; t < problem.tensors.size(); ++t) {
      const Tensor &tensor = problem.tensors[t];
      Flow flow;
      flow.tensor = int(t);
      int producer = facts.producers[t];
      if (producer >= 0) {
        const Node &node = problem.nodes[size_t(producer)];
        flow.producer = model.variableOfNode[size_t(producer)];
        flow.result = facts.resultIndex(int(t));
        flow.inCore = facts.core[size_t(producer)];
        flow.isScores = flow.inCore && (!node.cheap || !node.reduces());
        flow.inAttention = model.segments.isAttention[size_t(producer)];
        flow.inActivations = model.segments.activations[size_t(producer)].isAgain;
      } else if (tensor.kind == TensorKind::Parameter)
        flow.producer = model.variableOfTensor[t];
      flow.anyLayout = tensor.kind != TensorKind::Parameter && tensor.kind != TensorKind::Activation;
      flow.gradient = facts.needsGradient[t];
      flow.gradientRatio = facts.gradientRatios[t];
      flow.saved = facts.kept[t];
      const bool isView = producer >= 0 && problem.nodes[size_t(producer)].kind.isView();
      flow.savedWhereSmall = tensor.saved && producer >= 0 && !isView;
      flow.madeAgain = isView ? tensor.saved : bool(facts.madeAgain[t]);
      flow.isSlice = facts.kept[t] && producer >= 0 && baseOf(int(t)) != int(t);
      flow.savedForSlice = savedForSlice[t];
      flow.inSegment = segmentOf(producer) >= 0;
      flow.isNeeded = model.segments.isNeeded[t];
      int firstUnit = producer >= 0 ? layout->unitOfNode[size_t(producer)] : -1, lastUnit = firstUnit;
      std::set<int> units;
      int last = producer;
      for (auto [reader, operand] : facts.readers[t]) {
        last = std::max(last, reader);
        flow.forWeights = flow.forWeights || trains(reader);
        if (segmentOf(reader) != segmentOf(producer)) {
          flow.inSegment = false;
          flow.leavesSegment = true;
        }
        Flow::Read read{model.variableOfNode[size_t(reader)], operand};
        if (std::find(flow.reads.begin(), flow.reads.end(), read) == flow.reads.end()) flow.reads.push_back(read);
        int unit = layout->unitOfNode[size_t(reader)];
        units.insert(unit);
        firstUnit = firstUnit < 0 ? unit : std::min(firstUnit, unit);
        lastUnit = std::max(lastUnit, unit);
      }
      // Each input counts by itself; parameters and constants that are read alike are one flow.
      const bool isFed = tensor.kind == TensorKind::Input || tensor.kind == TensorKind::Label;
      const std::tuple key(FlowKey(flow), tensor.bytes(), facts.batchDims[t], facts.sequenceDims[t],
                           isFed ? int64_t(t) : -1);
      if (last >= 0) {
        flow.use = problem.nodes[size_t(last)].cheap ? facts.fused[size_t(last)].cluster : last;
        flow.nearLoss = behind[size_t(last)] * tuning::offloadSpanDivisor < all;
        flow.nearLossAgain = behindAgain[size_t(last)] * tuning::offloadSpanDivisor < all;
      }
      auto [found, isNew] = tied.try_emplace(key, model.flows.size());
      if (isNew)
        model.flows.edit().push_back(std::move(flow));
      else {
        Flow &first = model.flows.edit()[found->second];
        ++first.count;
        first.nearLoss += flow.nearLoss;
        first.nearLossAgain += flow.nearLossAgain;
      }
      share(model.flows.edit()[found->second].shares, std::max(0, firstUnit));
      if (isAtHand[t]) continue;
      for (int border = firstUnit + 1; border <= lastUnit; ++border)
        layout->crossings[size_t(border)].push_back(int(found->second));
      if (lastUnit > firstUnit + 1)
        layout->passing.push_back({int(found->second), firstUnit, {units.begin(), units.end()}});
    }
  }

  // Per tensor: is it in every stage that reads it without being sent? Inputs, labels and parameters, parameters laid
  // out otherwise, and cheap work on inputs and constants (masks, position numbers), which each stage does by itself.
  std::vector<bool> atHandEverywhere() const {
    std::vector<bool> atHand(problem.tensors.size()), ofParameter(problem.tensors.size());
    for (size_t t = 0; t < problem.tensors.size(); ++t) {
      atHand[t] = facts.producers[t] < 0;
      ofParameter[t] = problem.tensors[t].kind == TensorKind::Parameter;
    }
    for (const Node &node : problem.nodes) {
      const bool computes = anyIn(ofParameter, node.operands);
      const dist::Form form = node.kind.form;
      using dist::Form;
      const bool laysOut =
          form == Form::Transpose || form == Form::Reshape || form == Form::Cast || form == Form::Broadcast;
      if (!node.cheap || (computes && !laysOut) || !allIn(atHand, node.operands)) continue;
      for (int tensor : node.results) {
        atHand[size_t(tensor)] = true;
        ofParameter[size_t(tensor)] = computes;
      }
    }
    return atHand;
  }

  // Makes gradients of parameters from its other operands, or is another view of one for an operation that does.
  bool trains(int index) const {
    const Node &node = problem.nodes[size_t(index)];
    if (node.kind.isView())
      return std::ranges::any_of(node.results, [&](int result) {
        return std::ranges::any_of(facts.readers[size_t(result)], [&](auto reader) { return trains(reader.first); });
      });
    return node.rule.linearity != dist::FactorRule::LinearJointly && anyIn(facts.areWeights, node.operands);
  }

  // The activation in memory that a product reads a slice of.
  int baseOf(int tensor) const {
    int base = tensor;
    for (const Node *node = facts.producerOf(base); node; node = facts.producerOf(base)) {
      const bool isPart = node->kind.form == dist::Form::Slice || (base != tensor && node->kind.isView());
      if (node->operands.empty() || !isPart) break;
      base = node->operands[0];
    }
    return facts.producers[size_t(base)] >= 0 ? base : tensor;
  }

  // The segment of a node; -1 without one.
  int segmentOf(int node) const { return node < 0 ? -1 : model.segments.segmentOf[size_t(node)]; }

  const Problem &problem;
  const Constraints &constraints;
  const ProblemFacts &facts;
  std::shared_ptr<UnitLayout> layout;
  SplitModel model;
};

// Per tensor: does a gradient of another operand, or a derivative that is not constant, ask for its value?
std::vector<bool> findReadBack(const Graph &graph) {
  std::vector<bool> readBack(graph.problem.tensors.size(), false);
  for (const Node &node : graph.problem.nodes) {
    if (node.stopsGradient || node.rule.linearity == dist::FactorRule::LinearJointly) continue;
    const bool isLinear = node.rule.linearity == dist::FactorRule::LinearInOne;
    for (size_t o = 0; o < node.operands.size(); ++o)
      for (size_t other = 0; other < node.operands.size(); ++other)
        if ((other != o || !isLinear) && graph.needsGradient[size_t(node.operands[other])])
          readBack[size_t(node.operands[o])] = true;
  }
  return readBack;
}

// The gradients in memory that wait, and where.
WaitingGradients findWaitingGradients(const ProblemFacts &facts) {
  const Problem &problem = facts.problem;
  std::vector<bool> inMemory(problem.tensors.size(), false);
  std::vector<int> kernels;
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    for (size_t r = 0; r < node.results.size(); ++r)
      inMemory[size_t(node.results[r])] = !facts.core[i] && (!node.cheap || facts.fused[i].writes[r] > 0);
    kernels.push_back(node.cheap && facts.fused[i].isFused ? facts.fused[i].cluster : int(i));
  }
  return waitingGradients(facts, inMemory, kernels);
}

} // namespace

ProblemFacts gatherFacts(const Problem &problem, const Device &device, const Constraints &constraints,
                         bool tiesBlocks) {
  ProblemFacts facts(problem);
  facts.samplesMeetAt = problem.samplesMeetAt();
  facts.expertCounts = expertCounts(problem);
  const LogicalAxis sequence = findSequenceDims(facts);
  facts.sequenceDims = sequence.of;
  facts.sequence = findSequenceFactors(facts, sequence);
  facts.core = findAttentionCore(facts, facts.sequence);
  Fusion fusion = findFusion(facts, device);
  facts.fused = std::move(fusion.work);
  facts.kept = std::move(fusion.kept);
  facts.madeAgain = std::move(fusion.madeAgain);
  facts.held = heldForWeights(facts, facts.kept);
  facts.waitingGradients = findWaitingGradients(facts);
  facts.gradientRatios = gradientRatios(facts);
  facts.vocabularyFactors = findVocabularyFactors(problem);
  facts.residual = findResidualNodes(problem, facts.sequenceDims, facts.sequence, facts.vocabularyFactors);
  facts.readBack = findReadBack(facts);
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    auto canSplit = [&](int64_t factor) {
      return factor >= 0 && factor != facts.batchFactors[i] && dist::canSplit({{{"cp", 1}}}, node.rule, factor, {"cp"});
    };
    facts.canSplitPositions.push_back(canSplit(facts.sequence.positions[i]));
    facts.canSplitHeads.push_back(canSplit(facts.sequence.heads[i]));
    if (!node.cheap) facts.expensiveFlops = std::max(facts.expensiveFlops, node.flops / 20);
  }
  if (tiesBlocks) facts.repeats = problem.findRepeats();
  std::erase_if(facts.repeats, [&](const Repeat &repeat) { return !areAlike(facts, constraints, repeat); });
  facts.places.resize(problem.nodes.size());
  for (size_t run = 0; run < facts.repeats.size(); ++run)
    for (int i = facts.repeats[run].first; i < facts.repeats[run].end(); ++i)
      facts.places[size_t(i)] = {int(run), (i - facts.repeats[run].first) / facts.repeats[run].period};
  if (Result<std::vector<int>> places = splitPlaces(problem, constraints)) facts.cuts = *places; // else: said later
  facts.structure = StructureBuilder(constraints, facts).build();
  return facts;
}

} // namespace cleave::planner
