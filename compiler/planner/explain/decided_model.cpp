#include "compiler/planner/explain/decided_model.h"
#include "compiler/planner/infinity.h"
#include <algorithm>
#include <limits>

namespace cleave::planner {
namespace {

// Null: no pipeline.
const ScheduleProfile *profileOf(const Setting &setting) {
  return setting.pp == 1 ? nullptr : scheduleProfile(setting.schedule, setting.pp, setting.microbatches);
}

Setting settingOf(const Problem &problem, const Decision &decision) {
  Setting setting;
  setting.pp = decision.mesh.axisSize(dist::pipelineAxis);
  setting.schedule = decision.schedule;
  setting.microbatches = decision.microbatches;
  if (const ScheduleProfile *profile = profileOf(setting)) setting.weightVersions = profile->weightVersions;
  setting.dp = decision.mesh.axisSize("dp");
  setting.fsdp = decision.mesh.axisSize("fsdp");
  setting.cp = decision.mesh.axisSize("cp");
  setting.ep = decision.mesh.axisSize("ep");
  setting.tp = decision.mesh.axisSize("tp");
  setting.gridSide = decision.mesh.axisSize("tp_col");
  setting.gridDepth = decision.mesh.axisSize("tp_depth");
  const bool isPlane = std::ranges::count(decision.zeroAxes, "tp_row") > 0;
  if (setting.gridSide > 1) setting.grid = isPlane ? TensorGrid::Plane : TensorGrid::Cube;
  setting.order = orderOf(decision.mesh);
  setting.zero = decision.zero;
  setting.recompute = decision.recompute;
  setting.exceptLast = decision.exceptLast;
  setting.chunks = decision.chunks;
  setting.offload = decision.offload;
  setting.meetsAtUpdate = problem.meetsAtUpdate;
  setting.batchDivides = problem.batch / decision.microbatches % setting.batchWays() == 0;
  return setting;
}

// Are the operands partial sums where the candidate takes them so? It tells apart several candidates that pass one.
bool canBeFed(const SplitModel &model, const Node &node, const Candidate &candidate, const std::vector<int> &producers,
              const std::vector<int> &choice) {
  for (size_t o = 0; o < node.operands.size(); ++o) {
    if (candidate.uses[o].layout != partialSum) continue;
    int producer = producers[size_t(node.operands[o])];
    if (producer < 0) return false;
    size_t v = size_t(model.variableOfNode[size_t(producer)]);
    const auto &results = model.problem->nodes[size_t(producer)].results;
    size_t result = size_t(std::find(results.begin(), results.end(), node.operands[o]) - results.begin());
    if (model.variables[v].candidates[size_t(choice[v])].results[result] != partialSum) return false;
  }
  return true;
}

// The factor or dimension that tp splits; -1: none.
int64_t splitByTp(const std::vector<dist::Axes> &split) {
  const auto found =
      std::ranges::find_if(split, [](const dist::Axes &axes) { return std::ranges::count(axes, "tp") > 0; });
  return found == split.end() ? -1 : found - split.begin();
}

bool isChosen(const Candidate &candidate, const NodeDecision &decision) {
  return candidate.factor == splitByTp(decision.split) && candidate.passesPartial == !decision.passesPartial.empty();
}

Layout homeOf(const ParameterDecision &decision) {
  const int64_t dim = splitByTp(decision.parameter.dims);
  return dim < 0 ? whole : Layout(dim);
}

// A decision may come from elsewhere, with different splits in repetitions of a block. How nodes lie over laid axes
// follows from the graph and may differ: of a 3D grid in rows and columns, which products exchange (laid_axes.h).
bool repeatsWereTied(const Problem &problem, const Decision &decision, const ProblemFacts &facts) {
  auto splitOf = [&](int node) {
    dist::FactorSharding split = decision.nodes[size_t(node)].split;
    for (dist::Axes &axes : split)
      std::erase_if(axes, [](const std::string &axis) { return axis == "ep" || axis.starts_with("tp_"); });
    return split;
  };
  for (const Repeat &repeat : facts.repeats)
    for (int i = repeat.first + repeat.period; i < repeat.end(); ++i)
      if (splitOf(i) != splitOf(i - repeat.period)) return false;
  return !problem.nodes.empty();
}

std::vector<int> choicesOf(const Problem &problem, const ProblemFacts &facts, const SplitModel &model,
                           const Decision &decision) {
  std::vector<int> choice(model.variables.size(), 0);
  std::vector<size_t> parameterOf(problem.tensors.size(), 0);
  for (size_t t = 0, next = 0; t < problem.tensors.size(); ++t)
    if (problem.tensors[t].kind == TensorKind::Parameter) parameterOf[t] = next++;
  for (size_t v = 0; v < model.variables.size(); ++v) {
    const Variable &variable = model.variables[v];
    if (variable.isHome) {
      Layout home = homeOf(decision.parameters[parameterOf[size_t(variable.index)]]);
      auto found = std::find(variable.homes.begin(), variable.homes.end(), home);
      if (found != variable.homes.end()) choice[v] = int(found - variable.homes.begin());
      continue;
    }
    for (size_t c = 0; c < variable.candidates.size(); ++c)
      if (isChosen(variable.candidates[c], decision.nodes[size_t(variable.index)]) &&
          canBeFed(model, problem.nodes[size_t(variable.index)], variable.candidates[c], facts.producers, choice))
        choice[v] = int(c);
  }
  return choice;
}

// Stages and recomputation of the units. A node that no gradient flows through may stand in a later stage than its
// unit.
StagePlan planOf(const SplitModel &model, const Decision &decision) {
  StagePlan plan;
  const std::vector<Unit> &units = model.layout->units;
  for (size_t u = 0; u < units.size(); ++u) {
    int stage = std::numeric_limits<int>::max();
    Recompute recompute = decision.nodes[size_t(units[u].first)].recompute;
    for (int i = units[u].first; i < units[u].end; ++i) stage = std::min(stage, decision.nodes[size_t(i)].stage);
    if (u == 0 || stage >= int(plan.firstUnits.size())) plan.firstUnits.push_back(int(u));
    plan.recompute.push_back(recompute);
  }
  return plan;
}

// Parameters whose ZeRO stage is below the decision's (mix_zero.cpp).
void readMixedZero(const Decision &decision, const std::vector<int> &choice, SplitModel &model) {
  size_t next = 0;
  for (size_t t = 0; t < model.problem->tensors.size(); ++t) {
    if (model.problem->tensors[t].kind != TensorKind::Parameter) continue;
    const ParameterDecision &parameter = decision.parameters[next++];
    const size_t v = size_t(model.variableOfTensor[t]);
    const Variable &variable = model.variables[v];
    if (variable.index != int(t) || model.zeroDimension(int(t), variable.homes[size_t(choice[v])]) < 0) continue;
    const int zero = DecidedModel::zeroOf(decision, parameter);
    if (zero >= decision.zero) continue;
    if (model.lowers.empty()) model.lowers.edit().assign(model.problem->tensors.size(), false);
    model.lowers.edit()[t] = true;
    model.setting.lowerZero = zero;
  }
}

Constraints constraintsOf(const Decision &decision) {
  Constraints constraints;
  constraints.allowRedundantWork = true; // to show what it would cost
  constraints.attentionSplit = decision.attention;
  return constraints;
}

Result<DecidedModel> decide(const Problem &problem, std::shared_ptr<const ProblemFacts> facts, const Cluster &cluster,
                            const Decision &decision) {
  Result<SplitModel> model =
      buildModel(problem, *facts, cluster, constraintsOf(decision), settingOf(problem, decision));
  if (!model) return model.status();
  DecidedModel decided;
  decided.decision = &decision;
  decided.model = std::move(*model);
  decided.choice = choicesOf(problem, *facts, decided.model, decision);
  readMixedZero(decision, decided.choice, decided.model);
  decided.facts = std::move(facts);
  decided.plan = planOf(decided.model, decision);
  if (int(decided.plan.firstUnits.size()) != decision.stages)
    return {inputError("the stages of the decision do not begin where a unit of the model does")};
  decided.activity = costActivity(decided.model, decided.choice);
  decided.state = costState(decided.model, decided.choice);
  return decided;
}

} // namespace

int DecidedModel::zeroOf(const Decision &decision, const ParameterDecision &parameter) {
  auto isCut = [&](const dist::Sharding &layout) {
    return std::ranges::any_of(decision.zeroAxes, [&](const std::string &axis) { return layout.uses(axis); });
  };
  return isCut(parameter.parameter) ? 3 : isCut(parameter.gradient) ? 2 : isCut(parameter.state) ? 1 : 0;
}

DecidedModel DecidedModel::withLowerZero(int zero, const std::set<std::string> &parameters) const {
  DecidedModel lower = *this;
  SharedTable<bool> &lowers = lower.model.lowers;
  lowers.edit().assign(model.problem->tensors.size(), false);
  for (size_t v = 0; v < model.variables.size(); ++v) {
    const Variable &variable = model.variables[v];
    if (!variable.isHome || !parameters.contains(model.problem->tensors[size_t(variable.index)].name)) continue;
    lowers.edit()[size_t(variable.index)] = model.zeroDimension(variable.index, variable.homes[size_t(choice[v])]) >= 0;
  }
  lower.model.setting.lowerZero = zero;
  lower.activity = costActivity(lower.model, choice);
  lower.state = costState(lower.model, choice);
  return lower;
}

int DecidedModel::rankOf(int unit) const {
  const auto next = std::ranges::upper_bound(plan.firstUnits, unit);
  const ScheduleProfile *profile = profileOf(model.setting);
  return profile ? profile->rankOfStage[size_t(std::max(0, int(next - plan.firstUnits.begin()) - 1))] : 0;
}

StageProblem DecidedModel::stages() const {
  return {&model, &activity, &state, profileOf(model.setting), infinity, std::nullopt, {}, {}, {}, plan.firstUnits};
}

Result<DecidedModel> decidedModel(const Problem &problem, const Cluster &cluster, const Decision &decision) {
  CLEAVE_RETURN_IF_ERROR(verify(problem, decision));
  const Constraints constraints = constraintsOf(decision);
  auto facts = std::make_shared<ProblemFacts>(gatherFacts(problem, cluster.device, constraints));
  if (!repeatsWereTied(problem, decision, *facts))
    facts = std::make_shared<ProblemFacts>(gatherFacts(problem, cluster.device, constraints, false));
  return decide(problem, std::move(facts), cluster, decision);
}

Result<DecidedModel> DecidedModel::on(const Cluster &cluster) const {
  return decide(*model.problem, facts, cluster, *decision);
}

} // namespace cleave::planner
