// What every candidate of one node would cost with all other choices as decided: the decision is read back into a
// model of its own mesh, and the node's choice is varied.
#include "compiler/planner/outer_search.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::planner {
namespace {

Setting settingOf(const Problem &problem, const Decision &decision) {
  Setting setting;
  setting.dp = decision.mesh.axisSize("dp");
  setting.fsdp = decision.mesh.axisSize("fsdp");
  setting.tp = decision.mesh.axisSize("tp");
  setting.zero = decision.zero;
  setting.microbatches = decision.microbatches;
  setting.recompute = decision.recompute;
  setting.batchDivides = problem.batch / decision.microbatches % (setting.dp * setting.fsdp) == 0;
  return setting;
}

bool isChosen(const Candidate &candidate, const NodeDecision &decision) {
  int64_t factor = -1;
  for (size_t f = 0; f < decision.split.size(); ++f)
    if (std::find(decision.split[f].begin(), decision.split[f].end(), "tp") != decision.split[f].end())
      factor = int64_t(f);
  return candidate.factor == factor && candidate.passesPartial == !decision.passesPartial.empty();
}

Layout homeOf(const ParameterDecision &decision) {
  for (size_t dim = 0; dim < decision.parameter.dims.size(); ++dim)
    for (const std::string &axis : decision.parameter.dims[dim])
      if (axis == "tp") return Layout(dim);
  return whole;
}

} // namespace

Result<std::vector<CandidateCost>> explain(const Problem &problem, const Cluster &cluster, const Decision &decision,
                                           const std::string &node) {
  CLEAVE_RETURN_IF_ERROR(verify(problem, decision));
  size_t index = 0;
  while (index < problem.nodes.size() && problem.nodes[index].name != node) ++index;
  if (index == problem.nodes.size()) return {inputError(fmt::format("no node is called '{}'", node))};
  Constraints constraints;
  ProblemFacts facts = gatherFacts(problem, constraints);
  facts.repeats.clear(); // the node by itself, not its repetitions
  Result<SplitModel> model = buildModel(problem, facts, cluster, constraints, settingOf(problem, decision));
  if (!model) return model.status();
  std::vector<int> choice(model->variables.size(), 0);
  size_t parameter = 0;
  for (size_t v = 0; v < model->variables.size(); ++v) {
    const Variable &variable = model->variables[v];
    if (variable.isHome) {
      Layout home = homeOf(decision.parameters[parameter++]);
      auto found = std::find(variable.homes.begin(), variable.homes.end(), home);
      if (found != variable.homes.end()) choice[v] = int(found - variable.homes.begin());
      continue;
    }
    for (size_t c = 0; c < variable.candidates.size(); ++c)
      if (isChosen(variable.candidates[c], decision.nodes[size_t(variable.index)])) choice[v] = int(c);
  }
  size_t variable = size_t(model->variableOfNode[index]);
  std::vector<CandidateCost> rows;
  int chosen = choice[variable];
  for (size_t c = 0; c < model->variables[variable].candidates.size(); ++c) {
    choice[variable] = int(c);
    Evaluation evaluation = evaluate(*model, choice);
    if (!evaluation.isPossible) continue;
    const Candidate &candidate = model->variables[variable].candidates[c];
    CandidateCost row;
    row.split = decision.nodes[index].split;
    for (dist::Axes &axes : row.split) std::erase(axes, "tp");
    if (candidate.factor >= 0) row.split[size_t(candidate.factor)].push_back("tp");
    if (candidate.passesPartial) row.passesPartial = {"tp"};
    row.computeSeconds = evaluation.predicted.computeSeconds;
    row.communicationSeconds = evaluation.predicted.exposedCommunicationSeconds;
    row.memoryBytes = evaluation.predicted.memory.total();
    row.chosen = int(c) == chosen;
    rows.push_back(std::move(row));
  }
  return rows;
}

} // namespace cleave::planner
