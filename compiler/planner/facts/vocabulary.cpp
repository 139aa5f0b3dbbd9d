#include "compiler/planner/facts/vocabulary.h"
#include <algorithm>

namespace cleave::planner {
namespace {

bool isWeight(const Tensor &tensor) { return tensor.kind == TensorKind::Parameter && tensor.dims.size() >= 2; }

bool contains(const std::vector<int64_t> &factors, int64_t factor) {
  return std::find(factors.begin(), factors.end(), factor) != factors.end();
}

bool indexes(const dist::TensorFactors &dims, int64_t factor) {
  return std::any_of(dims.begin(), dims.end(), [&](const auto &factors) { return contains(factors, factor); });
}

// Of the tensors of a node: some weight has the factor, nothing else that it reads does.
bool isOnlyInWeights(const Problem &problem, const Node &node, int64_t factor) {
  bool inWeight = false;
  for (size_t o = 0; o < node.operands.size(); ++o) {
    if (!indexes(node.rule.operands[o], factor)) continue;
    if (!isWeight(problem.tensors[size_t(node.operands[o])])) return false;
    inWeight = true;
  }
  return inWeight;
}

} // namespace

std::vector<int64_t> findVocabularyFactors(const Problem &problem) {
  // Per tensor and dimension: a maximum is taken over it further on, with no operation of weight between.
  std::vector<std::vector<bool>> isCompared(problem.tensors.size());
  for (size_t t = 0; t < isCompared.size(); ++t) isCompared[t].resize(problem.tensors[t].dims.size());
  std::vector<int64_t> result(problem.nodes.size(), -1);
  for (size_t i = problem.nodes.size(); i-- > 0;) {
    const Node &node = problem.nodes[i];
    std::vector<bool> compared(node.rule.factors.size());
    for (size_t f = 0; f < compared.size(); ++f)
      compared[f] =
          node.rule.factors[f].kind == dist::Factor::Reduced && node.rule.factors[f].reduction == dist::Reduction::Max;
    for (size_t r = 0; r < node.results.size(); ++r)
      for (size_t dim = 0; dim < node.rule.results[r].size(); ++dim)
        for (int64_t f : node.rule.results[r][dim])
          if (isCompared[size_t(node.results[r])][dim]) compared[size_t(f)] = true;
    for (size_t f = 0; f < compared.size() && result[i] < 0; ++f) {
      bool isLookedUp = node.rule.factors[f].kind == dist::Factor::Reduced;
      if ((isLookedUp || compared[f]) && isOnlyInWeights(problem, node, int64_t(f))) result[i] = int64_t(f);
    }
    if (!node.cheap) continue;
    for (size_t o = 0; o < node.operands.size(); ++o)
      for (size_t dim = 0; dim < node.rule.operands[o].size(); ++dim)
        for (int64_t f : node.rule.operands[o][dim])
          if (compared[size_t(f)]) isCompared[size_t(node.operands[o])][dim] = true;
  }
  return result;
}

} // namespace cleave::planner
