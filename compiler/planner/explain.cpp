// What every candidate of a node would cost with all other choices as decided: the decision is read back into a model
// of its own mesh, and one node's choice at a time is varied.
#include "compiler/planner/outer_search.h"
#include <algorithm>
#include <cmath>
#include <set>

namespace cleave::planner {
namespace {

Setting settingOf(const Problem &problem, const Decision &decision) {
  Setting setting;
  setting.pp = decision.mesh.axisSize("pp");
  setting.schedule = decision.schedule;
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

// A decision may come from elsewhere, with different splits in repetitions of a block.
bool repeatsWereTied(const Problem &problem, const Decision &decision, const ProblemFacts &facts) {
  for (const Repeat &repeat : facts.repeats)
    for (int i = repeat.first + repeat.period; i < repeat.end(); ++i)
      if (decision.nodes[size_t(i)].split != decision.nodes[size_t(i - repeat.period)].split) return false;
  return !problem.nodes.empty();
}

std::vector<int> choicesOf(const Problem &problem, const SplitModel &model, const Decision &decision) {
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
      if (isChosen(variable.candidates[c], decision.nodes[size_t(variable.index)])) choice[v] = int(c);
  }
  return choice;
}

} // namespace

Result<std::vector<NodeExplanation>> explainAll(const Problem &problem, const Cluster &cluster,
                                                const Decision &decision) {
  CLEAVE_RETURN_IF_ERROR(verify(problem, decision));
  Constraints constraints;
  constraints.allowRedundantWork = true; // to show what it would cost
  ProblemFacts facts = gatherFacts(problem, constraints);
  if (!repeatsWereTied(problem, decision, facts)) facts = gatherFacts(problem, constraints, false);
  Result<SplitModel> model = buildModel(problem, facts, cluster, constraints, settingOf(problem, decision));
  if (!model) return model.status();
  std::vector<int> choice = choicesOf(problem, *model, decision);
  std::vector<std::vector<const Flow *>> around(model->variables.size());
  for (const Flow &flow : model->flows) {
    std::set<int> touched = {flow.producer};
    for (const Flow::Read &read : flow.reads) touched.insert(read.variable);
    for (int variable : touched)
      if (variable >= 0) around[size_t(variable)].push_back(&flow);
  }
  std::vector<NodeExplanation> explanations;
  std::vector<int> explanationOf(model->variables.size(), -1);
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    size_t variable = size_t(model->variableOfNode[i]);
    if (explanationOf[variable] >= 0) {
      explanations[size_t(explanationOf[variable])].nodes.push_back(problem.nodes[i].name);
      continue;
    }
    explanationOf[variable] = int(explanations.size());
    NodeExplanation explanation{problem.nodes[i].op, problem.nodes[i].rule.str(), {problem.nodes[i].name}, {}};
    int chosen = choice[variable];
    for (size_t c = 0; c < model->variables[variable].candidates.size(); ++c) {
      const Candidate &candidate = model->variables[variable].candidates[c];
      choice[variable] = int(c);
      Price price = nodePrice(*model, model->variables[variable], c);
      for (const Flow *flow : around[variable])
        price += flowPrice(*model, *flow, producedLayout(*model, *flow, choice), usesOf(*model, *flow, choice));
      if (!std::isfinite(price.exposed)) continue; // a partial sum where nobody makes one
      CandidateCost row;
      row.split = decision.nodes[i].split;
      for (dist::Axes &axes : row.split) std::erase(axes, "tp");
      if (candidate.factor >= 0) row.split[size_t(candidate.factor)].push_back("tp");
      if (candidate.passesPartial) row.passesPartial = {"tp"};
      row.computeSeconds = price.forward + price.backward;
      row.communicationSeconds = price.exposed;
      row.memoryBytes = price.memory();
      row.chosen = int(c) == chosen;
      explanation.candidates.push_back(std::move(row));
    }
    choice[variable] = chosen;
    explanations.push_back(std::move(explanation));
  }
  return explanations;
}

} // namespace cleave::planner
