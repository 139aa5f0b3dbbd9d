#include "compiler/planner/facts/graph.h"
#include <algorithm>

namespace cleave::planner {

Graph::Graph(const Problem &problem)
    : problem(problem), producers(problem.producers()), readers(problem.tensors.size()),
      needsGradient(problem.needsGradient()), areWeights(problem.areWeights(true)), batchDims(problem.batchDims()) {
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    batchFactors.push_back(Problem::batchFactor(node, batchDims));
    for (size_t o = 0; o < node.operands.size(); ++o) readers[size_t(node.operands[o])].emplace_back(int(i), o);
  }
}

size_t Graph::resultIndex(int tensor) const {
  const std::vector<int> &results = producerOf(tensor)->results;
  return size_t(std::ranges::find(results, tensor) - results.begin());
}

bool anyIn(const std::vector<bool> &set, const std::vector<int> &members) {
  return std::ranges::any_of(members, [&](int one) { return bool(set[size_t(one)]); });
}

bool allIn(const std::vector<bool> &set, const std::vector<int> &members) {
  return std::ranges::all_of(members, [&](int one) { return bool(set[size_t(one)]); });
}

bool isMatrix(const Tensor &tensor) { return tensor.kind == TensorKind::Parameter && tensor.dims.size() >= 2; }

bool indexes(const dist::TensorFactors &dims, int64_t factor) {
  return std::ranges::any_of(dims, [&](const auto &dim) { return std::ranges::find(dim, factor) != dim.end(); });
}

int64_t factorAt(const dist::FactorRule &rule, const dist::TensorFactors &dims, int64_t dim) {
  return dim < 0 ? -1 : majorFactor(rule, dims[size_t(dim)]);
}

int64_t LogicalAxis::factorOf(const Node &node) const {
  auto find = [&](const std::vector<int> &tensors, const std::vector<dist::TensorFactors> &dims) {
    int64_t factor = -1;
    for (size_t i = 0; factor < 0 && i < tensors.size(); ++i)
      factor = factorAt(node.rule, dims[i], of[size_t(tensors[i])]);
    return factor;
  };
  const int64_t factor = find(node.results, node.rule.results);
  return factor >= 0 ? factor : find(node.operands, node.rule.operands);
}

bool LogicalAxis::propagate(const Node &node, int64_t factor) {
  bool changed = false;
  auto spreadTo = [&](const std::vector<int> &tensors, const std::vector<dist::TensorFactors> &dims) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      int64_t &now = of[size_t(tensors[i])];
      if (now >= 0 || (onlyActivations && problem.tensors[size_t(tensors[i])].kind != TensorKind::Activation)) continue;
      now = dimOf(node.rule, dims[i], factor);
      changed |= now >= 0;
    }
  };
  spreadTo(node.operands, node.rule.operands);
  spreadTo(node.results, node.rule.results);
  return changed;
}

} // namespace cleave::planner
