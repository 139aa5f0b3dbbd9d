#include "compiler/planner/facts/residual.h"
#include <algorithm>

namespace cleave::planner {
namespace {

bool sumsFeatures(const Node &node, int64_t positions) {
  for (size_t f = 0; f < node.rule.factors.size(); ++f) {
    const dist::Factor &factor = node.rule.factors[f];
    if (factor.kind == dist::Factor::Reduced && factor.reduction == dist::Reduction::Sum && factor.size > 1 &&
        int64_t(f) != positions)
      return true;
  }
  return false;
}

} // namespace

std::vector<bool> findResidualNodes(const Problem &problem, const std::vector<int64_t> &sequenceDims,
                                    const SequenceFactors &sequence, const std::vector<int64_t> &vocabularyFactors) {
  std::vector<bool> result(problem.nodes.size());
  std::vector<bool> isNormalized(problem.tensors.size()), isOfVocabulary(problem.tensors.size());
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    auto reads = [&](const std::vector<bool> &set) {
      return std::any_of(node.operands.begin(), node.operands.end(), [&](int tensor) { return set[size_t(tensor)]; });
    };
    bool isLogits = node.cheap ? reads(isOfVocabulary) : vocabularyFactors[i] >= 0;
    bool alongSequence = std::any_of(node.operands.begin(), node.operands.end(),
                                     [&](int tensor) { return sequenceDims[size_t(tensor)] >= 0; });
    result[i] = node.cheap && alongSequence && !isLogits && !sequence.inAttention[i] &&
                (sumsFeatures(node, sequence.positions[i]) || reads(isNormalized));
    for (int tensor : node.results) {
      isNormalized[size_t(tensor)] = result[i];
      isOfVocabulary[size_t(tensor)] = isLogits;
    }
  }
  return result;
}

} // namespace cleave::planner
