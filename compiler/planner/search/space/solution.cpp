#include "compiler/planner/search/space/solution.h"
#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::planner {
Recompute mostRecomputed(const Solution &solution) {
  std::array<int, everyRecompute.size()> count{};
  const std::vector<Unit> &units = solution.model->layout->units;
  bool hasBlocks = std::any_of(units.begin(), units.end(), [](const Unit &unit) { return unit.isBlock; });
  for (size_t u = 0; u < units.size(); ++u)
    if (units[u].isBlock || !hasBlocks) ++count[size_t(solution.plan.recompute[u])];
  return Recompute(std::ranges::max_element(count) - count.begin());
}

namespace {

// Which parameters have a lower ZeRO stage than the others.
std::string mixedZeroNote(const Problem &problem, const Solution &solution) {
  constexpr size_t shown = 4;
  const SplitModel &model = *solution.model;
  std::vector<std::string> names;
  size_t atLower = 0, atHigher = 0; // parameters
  for (const Variable &variable : model.variables) {
    if (!variable.isHome || !problem.tensors[size_t(variable.index)].trainable) continue;
    (model.lowers[size_t(variable.index)] ? atLower : atHigher) += size_t(variable.count);
    if (!model.lowers[size_t(variable.index)]) continue;
    if (names.size() == shown) names.emplace_back("...");
    if (names.size() > shown) continue;
    const std::string others = variable.count > 1 ? fmt::format(" and {} like it", variable.count - 1) : "";
    names.push_back(fmt::format("'{}'{}", problem.tensors[size_t(variable.index)].name, others));
  }
  return fmt::format(
      "ZeRO-{} for {} parameters, whose gathers cost most for the memory that they save, or which there is "
      "room for: {}; ZeRO-{} for the other {}",
      model.setting.lowerZero, atLower, fmt::join(names, ", "), model.setting.zero, atHigher);
}

} // namespace

Decision toDecision(const Problem &problem, const Solution &solution) {
  const SplitModel &model = *solution.model;
  const Setting &setting = model.setting;
  const std::vector<int> &choice = solution.choice;
  const std::vector<Unit> &units = model.layout->units;
  Decision decision;
  decision.mesh = setting.mesh();
  decision.batchAxes = setting.batchAxes();
  decision.zeroAxes = setting.zeroAxes();
  decision.zero = setting.zero;
  decision.microbatches = setting.microbatches;
  decision.recompute = mostRecomputed(solution);
  decision.exceptLast = setting.exceptLast;
  decision.chunks = setting.chunks;
  decision.offload = setting.offload;
  decision.schedule = setting.schedule;
  decision.attention = model.attentionSplit;
  decision.gathersAgain = gathersAgain(model);
  decision.stages = int(solution.plan.firstUnits.size());
  std::vector<int> starts;
  for (int unit : solution.plan.firstUnits) starts.push_back(units[size_t(unit)].first);
  std::vector<int> stages = stagesOfNodes(problem, starts);
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    int variable = model.variableOfNode[i];
    const Candidate &chosen = model.variables[size_t(variable)].candidates[size_t(choice[size_t(variable)])];
    NodeDecision node{problem.nodes[i].name, dist::FactorSharding(problem.nodes[i].rule.factors.size()), {}};
    node.computes = problem.nodes[i].flops > 0;
    int64_t batchFactor = model.batchFactors[i];
    if (batchFactor >= 0) node.split[size_t(batchFactor)] = decision.batchAxes;
    if (chosen.factor >= 0) node.split[size_t(chosen.factor)].push_back("tp");
    for (const LaidAxis &axis : model.laid)
      if (int64_t factor = axis.factors[i]; factor >= 0) node.split[size_t(factor)].push_back(axis.name);
    if (int64_t factor = model.contextFactors[i]; factor >= 0) {
      // A part of the sequence may be cut further for sequence parallelism; heads lie over tp before Ulysses.
      dist::Axes &axes = node.split[size_t(factor)];
      axes.insert(model.contextByHeads[i] ? axes.end() : axes.begin(), "cp");
    }
    if (chosen.passesPartial) node.passesPartial = {"tp"};
    node.stage = stages[i];
    node.recompute = solution.plan.recompute[size_t(model.layout->unitOfNode[i])];
    if (node.recompute != Recompute::None) node.segment = model.segments.segmentOf[i];
    node.again = model.segments.again(node.recompute, int(i));
    decision.nodes.push_back(std::move(node));
  }
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    const Tensor &tensor = problem.tensors[t];
    if (tensor.kind != TensorKind::Parameter) continue;
    int variable = model.variableOfTensor[t];
    Layout home = model.variables[size_t(variable)].homes[size_t(choice[size_t(variable)])];
    ParameterDecision parameter;
    parameter.name = tensor.name;
    dist::Sharding plain = model.parameterLayout(int(t), home);
    dist::Sharding split = plain;
    int64_t dim = model.zeroDimension(int(t), home);
    // ZeRO shards are cut from the tensor parallel shard: tp stays the major axis of its dimension.
    if (dim >= 0)
      for (const std::string &axis : decision.zeroAxes) split.dims[size_t(dim)].push_back(axis);
    const int zero = model.zeroStage(model.variables[size_t(variable)].index);
    parameter.parameter = zero >= 3 ? split : plain;
    parameter.gradient = zero >= 2 ? split : plain;
    parameter.state = zero >= 1 ? split : plain;
    decision.parameters.push_back(std::move(parameter));
  }
  if (std::ranges::find(model.lowers, true) != model.lowers.end())
    decision.notes.push_back(mixedZeroNote(problem, solution));
  decision.predicted = solution.evaluation.predicted;
  decision.stageDecisions = solution.evaluation.stages;
  return decision;
}

} // namespace cleave::planner
