#include "compiler/planner/facts/megatron.h"
#include <algorithm>

namespace cleave::planner {
namespace {

// Among the tensors that a node reads, some weight has the factor and nothing else does.
bool isOnlyInWeights(const Problem &problem, const Node &node, int64_t factor) {
  bool inWeight = false;
  for (size_t o = 0; o < node.operands.size(); ++o) {
    if (!indexes(node.rule.operands[o], factor)) continue;
    if (!isMatrix(problem.tensors[size_t(node.operands[o])])) return false;
    inWeight = true;
  }
  return inWeight;
}

bool sumsFeatures(const Node &node, int64_t positions) {
  for (int64_t f = 0; f < int64_t(node.rule.factors.size()); ++f) {
    const dist::Factor &factor = node.rule.factors[size_t(f)];
    if (factor.kind == dist::Factor::Reduced && factor.reduction == dist::Reduction::Sum && factor.size > 1 &&
        f != positions)
      return true;
  }
  return false;
}

} // namespace

std::vector<int64_t> findVocabularyFactors(const Problem &problem) {
  // Per tensor and dimension: a maximum is taken over it further on, with no operation of weight between.
  std::vector<std::vector<bool>> isCompared;
  for (const Tensor &tensor : problem.tensors) isCompared.emplace_back(tensor.dims.size());
  std::vector<int64_t> result(problem.nodes.size(), -1);
  for (size_t i = problem.nodes.size(); i-- > 0;) {
    const Node &node = problem.nodes[i];
    for (int64_t f = 0; f < int64_t(node.rule.factors.size()); ++f) {
      const dist::Factor &factor = node.rule.factors[size_t(f)];
      const bool isReduced = factor.kind == dist::Factor::Reduced;
      bool compares = isReduced && factor.reduction == dist::Reduction::Max;
      auto forItsDims = [&](int tensor, const dist::TensorFactors &dims, auto act) {
        for (size_t dim = 0; dim < dims.size(); ++dim)
          if (std::ranges::find(dims[dim], f) != dims[dim].end()) act(isCompared[size_t(tensor)][dim]);
      };
      for (size_t r = 0; r < node.results.size(); ++r)
        forItsDims(node.results[r], node.rule.results[r], [&](bool is) { compares |= is; });
      if (result[i] < 0 && (isReduced || compares) && isOnlyInWeights(problem, node, f)) result[i] = f;
      for (size_t o = 0; node.cheap && compares && o < node.operands.size(); ++o)
        forItsDims(node.operands[o], node.rule.operands[o], [](auto is) { is = true; });
    }
  }
  return result;
}

std::vector<bool> findResidualNodes(const Problem &problem, const std::vector<int64_t> &sequenceDims,
                                    const SequenceFactors &sequence, const std::vector<int64_t> &vocabularyFactors) {
  std::vector<bool> result(problem.nodes.size());
  std::vector<bool> isNormalized(problem.tensors.size()), isOfVocabulary(problem.tensors.size());
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    const bool isLogits = node.cheap ? anyIn(isOfVocabulary, node.operands) : vocabularyFactors[i] >= 0;
    auto hasSequence = [&](int tensor) { return sequenceDims[size_t(tensor)] >= 0; };
    result[i] = node.cheap && std::ranges::any_of(node.operands, hasSequence) && !isLogits &&
                !sequence.inAttention[i] &&
                (sumsFeatures(node, sequence.positions[i]) || anyIn(isNormalized, node.operands));
    for (int tensor : node.results) {
      isNormalized[size_t(tensor)] = result[i];
      isOfVocabulary[size_t(tensor)] = isLogits;
    }
  }
  return result;
}

} // namespace cleave::planner
