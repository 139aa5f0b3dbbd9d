// The cost of every candidate of a node with all other choices as decided: one node's choice at a time is varied.
#include "compiler/planner/explain/breakdown.h"
#include <algorithm>
#include <cmath>
#include <set>

namespace cleave::planner {
namespace {

// The neighbour with which a node shares a flow, as the node sees it.
Neighbour sharedWith(const DecidedModel &decided, const Flow &flow, int variable) {
  const Problem &problem = *decided.model.problem;
  const Tensor &tensor = problem.tensors[size_t(flow.tensor)];
  auto nameOf = [&](int node) { return problem.nodes[size_t(node)].name; };
  if (tensor.kind == TensorKind::Parameter) return {"parameter", tensor.name, ""};
  if (tensor.kind != TensorKind::Activation) return {"input", tensor.name, ""};
  Neighbour neighbour{"operand", nameOf(decided.facts->producers[size_t(flow.tensor)]), ""};
  if (flow.producer != variable) return neighbour;
  neighbour.relation = "result";
  const auto &readers = decided.facts->readers[size_t(flow.tensor)];
  if (readers.empty()) return neighbour;
  neighbour.reader = nameOf(readers[0].first);
  neighbour.more = int64_t(readers.size()) - 1;
  return neighbour;
}

void add(std::vector<Neighbour> &neighbours, Neighbour one, double seconds) {
  auto known = std::ranges::find_if(neighbours, [&](const Neighbour &other) { return other.isSame(one); });
  if (known == neighbours.end()) known = neighbours.insert(neighbours.end(), std::move(one));
  known->seconds += seconds;
}

} // namespace

std::vector<NodeExplanation> explainAll(const DecidedModel &decided) {
  const SplitModel *model = &decided.model;
  const Problem &problem = *model->problem;
  std::vector<int> choice = decided.choice;
  std::vector<std::vector<const Flow *>> around(model->variables.size());
  for (const Flow &flow : model->flows) {
    std::set<int> touched = {flow.producer};
    for (const Flow::Read &read : flow.reads) touched.insert(read.variable);
    for (int variable : touched)
      if (variable >= 0) around[size_t(variable)].push_back(&flow);
  }
  std::vector<NodeExplanation> explanations;
  const bool isStaged = decided.decision->stages > 1;
  std::vector<int> explanationOf(model->variables.size(), -1);
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    size_t variable = size_t(model->variableOfNode[i]);
    if (explanationOf[variable] >= 0) {
      NodeExplanation &known = explanations[size_t(explanationOf[variable])];
      known.nodes.push_back(problem.nodes[i].name);
      if (isStaged) known.stages.push_back(decided.decision->nodes[i].stage);
      continue;
    }
    explanationOf[variable] = int(explanations.size());
    NodeExplanation explanation{problem.nodes[i].op, problem.nodes[i].rule.str(), {problem.nodes[i].name}, {}};
    if (isStaged) explanation.stages.push_back(decided.decision->nodes[i].stage);
    int chosen = choice[variable];
    for (size_t c = 0; c < model->variables[variable].candidates.size(); ++c) {
      const Candidate &candidate = model->variables[variable].candidates[c];
      choice[variable] = int(c);
      Cost price = nodePrice(*model, model->variables[variable], c);
      price.add(exchangePrice(*model, model->variables[variable], c));
      CandidateCost row;
      for (const Flow *flow : around[variable]) {
        const Cost shared =
            flowPrice(*model, *flow, producedLayout(*model, *flow, choice), usesOf(*model, *flow, choice));
        if (shared.communication > 0)
          add(row.neighbours, sharedWith(decided, *flow, int(variable)), shared.communication);
        price.add(shared);
      }
      if (!std::isfinite(price.communication)) continue; // a partial sum where nobody makes one
      row.split = decided.decision->nodes[i].split;
      for (dist::Axes &axes : row.split) std::erase(axes, "tp");
      if (candidate.factor >= 0) row.split[size_t(candidate.factor)].push_back("tp");
      if (candidate.passesPartial) row.passesPartial = {"tp"};
      row.computeSeconds = price.compute();
      row.communicationSeconds = price.communication;
      row.memoryBytes = price.kept + price.sums;
      row.chosen = int(c) == chosen;
      explanation.candidates.push_back(std::move(row));
    }
    choice[variable] = chosen;
    explanations.push_back(std::move(explanation));
  }
  return explanations;
}

} // namespace cleave::planner
