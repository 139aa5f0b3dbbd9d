#include "compiler/planner/sequence.h"
#include <algorithm>
#include <set>

namespace cleave::planner {
namespace {

int64_t majorFactor(const dist::FactorRule &rule, const std::vector<int64_t> &factors) {
  for (int64_t factor : factors)
    if (rule.factors[size_t(factor)].size > 1) return factor;
  return -1;
}

} // namespace

std::vector<int64_t> findSequenceDims(const Problem &problem, const std::vector<int64_t> &batchFactors) {
  std::vector<int64_t> dims(problem.tensors.size(), -1);
  auto mark = [&](const Node &node, int64_t factor) {
    for (size_t o = 0; o < node.operands.size(); ++o)
      for (size_t dim = 0; dim < node.rule.operands[o].size(); ++dim)
        if (majorFactor(node.rule, node.rule.operands[o][dim]) == factor && dims[size_t(node.operands[o])] < 0 &&
            problem.tensors[size_t(node.operands[o])].kind == TensorKind::Activation)
          dims[size_t(node.operands[o])] = int64_t(dim);
    for (size_t r = 0; r < node.results.size(); ++r)
      for (size_t dim = 0; dim < node.rule.results[r].size(); ++dim)
        if (majorFactor(node.rule, node.rule.results[r][dim]) == factor && dims[size_t(node.results[r])] < 0)
          dims[size_t(node.results[r])] = int64_t(dim);
  };
  for (int pass = 0; pass < 2; ++pass) { // the second reaches what stands before the first product
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const Node &node = problem.nodes[pass == 0 ? i : problem.nodes.size() - 1 - i];
      size_t index = pass == 0 ? i : problem.nodes.size() - 1 - i;
      std::set<int64_t> inWeight;
      bool hasWeight = false;
      for (size_t o = 0; o < node.operands.size(); ++o) {
        const Tensor &tensor = problem.tensors[size_t(node.operands[o])];
        if (tensor.kind != TensorKind::Parameter || tensor.dims.size() < 2 || node.cheap) continue;
        hasWeight = true;
        for (const auto &factors : node.rule.operands[o]) inWeight.insert(factors.begin(), factors.end());
      }
      for (size_t f = 0; hasWeight && f < node.rule.factors.size(); ++f)
        if (!inWeight.count(int64_t(f)) && int64_t(f) != batchFactors[index] && node.rule.factors[f].size > 1 &&
            node.rule.factors[f].kind == dist::Factor::Parallel)
          mark(node, int64_t(f));
      for (size_t o = 0; o < node.operands.size(); ++o) {
        int64_t dim = dims[size_t(node.operands[o])];
        if (dim >= 0 && !hasWeight) mark(node, majorFactor(node.rule, node.rule.operands[o][size_t(dim)]));
      }
      for (size_t r = 0; r < node.results.size(); ++r) {
        int64_t dim = dims[size_t(node.results[r])];
        if (dim >= 0) mark(node, majorFactor(node.rule, node.rule.results[r][size_t(dim)]));
      }
    }
  }
  return dims;
}

} // namespace cleave::planner
