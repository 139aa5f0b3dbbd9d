#include "compiler/planner/facts/gradients.h"
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace cleave::planner {

using dist::Form;

namespace {

// Tensors whose gradients are one and the same.
class SameGradients {
public:
  explicit SameGradients(const Graph &graph) : parent(graph.problem.tensors.size()) {
    std::iota(parent.begin(), parent.end(), 0);
    for (const Node &node : graph.problem.nodes) {
      const Form form = node.kind.form;
      if (node.results.size() != 1 || (form != Form::Accumulation && form != Form::Reshape)) continue;
      for (int tensor : node.operands) {
        const Tensor &operand = graph.problem.tensors[size_t(tensor)];
        if (operand.kind == TensorKind::Activation && graph.readers[size_t(tensor)].size() == 1 &&
            operand.elements() == graph.problem.tensors[size_t(node.results[0])].elements())
          parent[size_t(of(tensor))] = of(node.results[0]);
      }
    }
  }
  int of(int tensor) const {
    while (parent[size_t(tensor)] != tensor) tensor = parent[size_t(tensor)];
    return tensor;
  }

private:
  std::vector<int> parent;
};

// The terms that wait: all but that of the first kernel, where there are several.
void addTerms(const Problem &problem, const std::vector<int> &kernels, const std::vector<int> &readers,
              WaitingGradients::One &gradient) {
  std::map<int, WaitingGradients::One::Term> ofKernel;
  for (int reader : readers) {
    const Node &node = problem.nodes[size_t(reader)];
    auto [term, isNew] = ofKernel.try_emplace(kernels[size_t(reader)]);
    const bool isAsResult = node.kind.form == Form::Concat || (node.kind.form == Form::Slice && isNew);
    term->second = {reader, isAsResult ? node.results[0] : -1};
  }
  for (const auto &[kernel, term] : ofKernel) gradient.terms.push_back(term);
  std::ranges::sort(gradient.terms, {}, &WaitingGradients::One::Term::at);
  if (gradient.terms.size() > 1) gradient.terms.erase(gradient.terms.begin());
}

} // namespace

WaitingGradients waitingGradients(const Graph &graph, const std::vector<bool> &inMemory,
                                  const std::vector<int> &kernels) {
  const Problem &problem = graph.problem;
  const SameGradients same(graph);
  auto flows = [&](int tensor) { return graph.producers[size_t(tensor)] >= 0 && graph.needsGradient[size_t(tensor)]; };
  // For each gradient: the first node that makes one of its tensors, and the last one that reads one.
  std::vector<WaitingGradients::One> gradients(problem.tensors.size(), {{}, int(problem.nodes.size()), -1});
  auto gradientOf = [&](int tensor) -> WaitingGradients::One & { return gradients[size_t(same.of(tensor))]; };
  for (int t = 0; t < int(problem.tensors.size()); ++t) {
    if (!flows(t)) continue;
    gradientOf(t).first = std::min(gradientOf(t).first, graph.producers[size_t(t)]);
    if (inMemory[size_t(t)]) gradientOf(t).tensors.push_back(t);
  }
  WaitingGradients result;
  std::vector<std::vector<int>> readers(problem.tensors.size());
  for (int i = 0; i < int(problem.nodes.size()); ++i) {
    const Node &node = problem.nodes[size_t(i)];
    for (int tensor : node.operands) {
      if (!flows(tensor)) continue;
      gradientOf(tensor).last = i;
      // A node that passes the gradient of its result on makes no term.
      const bool passes =
          std::ranges::any_of(node.results, [&](int result) { return same.of(result) == same.of(tensor); });
      if (!passes && !node.stopsGradient) readers[size_t(same.of(tensor))].push_back(i);
    }
    result.hasBackward.push_back(anyIn(graph.needsGradient, node.results));
  }
  for (int i = 0; i < int(problem.nodes.size()); ++i) {
    const Node &node = problem.nodes[size_t(i)];
    std::vector<bool> &waits = result.waitsForOperand.emplace_back();
    for (int tensor : node.operands) {
      WaitingGradients::One &gradient = gradientOf(tensor);
      waits.push_back(inMemory[size_t(tensor)] && gradient.first < i && i < gradient.last &&
                      node.kind.form != Form::Slice);
      if (waits.back() && (gradient.readers.empty() || gradient.readers.back() != i)) gradient.readers.push_back(i);
    }
  }
  for (size_t t = 0; t < gradients.size(); ++t) {
    WaitingGradients::One &gradient = gradients[t];
    if (gradient.last <= gradient.first + 1 || gradient.tensors.empty()) continue;
    addTerms(problem, kernels, readers[t], gradient);
    result.all.push_back(std::move(gradient));
  }
  return result;
}

std::vector<double> WaitingGradients::past(const std::function<double(int)> &bytes) const {
  std::vector<double> change(hasBackward.size() + 1, 0.0), own(hasBackward.size(), 0.0);
  for (const One &gradient : all) {
    double most = 0;
    for (int tensor : gradient.tensors) most = std::max(most, bytes(tensor));
    for (const One::Term &term : gradient.terms) {
      const double size = term.like >= 0 ? bytes(term.like) : most;
      change[size_t(gradient.first) + 1] += size;
      change[size_t(term.at)] -= size;
    }
    for (int reader : gradient.readers) own[size_t(reader)] += most;
  }
  std::partial_sum(change.begin(), change.end(), change.begin());
  change.pop_back();
  for (size_t i = 0; i < change.size(); ++i) change[i] = hasBackward[i] ? change[i] - own[i] : 0;
  return change;
}

std::vector<double> gradientRatios(const Graph &graph) {
  const Problem &problem = graph.problem;
  std::vector<double> ratios;
  for (const Tensor &tensor : problem.tensors)
    ratios.push_back(tensor.kind == TensorKind::Parameter ? double(tensor.gradientBytes) / double(tensor.elementBytes)
                                                          : 1);
  for (const Node &node : problem.nodes)
    for (int result : node.results)
      for (int operand : node.operands)
        if (graph.areWeights[size_t(result)] && graph.areWeights[size_t(operand)])
          ratios[size_t(result)] = std::max(ratios[size_t(result)], ratios[size_t(operand)]);
  return ratios;
}

std::vector<HeldForWeights> heldForWeights(const Graph &graph, const std::vector<bool> &kept) {
  const Problem &problem = graph.problem;
  const SameGradients same(graph);
  std::vector<HeldForWeights> held(problem.nodes.size());
  std::set<int> counted;
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    const bool trains = anyIn(graph.areWeights, node.operands);
    if (!trains || node.results.size() != 1 || graph.areWeights[size_t(node.results[0])]) continue;
    held[i].gradient = counted.insert(same.of(node.results[0])).second;
    if (node.rule.linearity == dist::FactorRule::LinearJointly) continue;
    for (int tensor : node.operands)
      if (problem.tensors[size_t(tensor)].kind == TensorKind::Activation && !graph.areWeights[size_t(tensor)] &&
          !kept[size_t(tensor)])
        held[i].operand = tensor;
  }
  return held;
}

} // namespace cleave::planner
