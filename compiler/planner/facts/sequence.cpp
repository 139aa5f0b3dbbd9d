#include "compiler/planner/facts/sequence.h"
#include <algorithm>
#include <map>
#include <set>

namespace cleave::planner {
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

namespace {

class AttentionFinder {
public:
  AttentionFinder(const Problem &problem, const std::vector<int64_t> &sequenceDims,
                  const std::vector<int64_t> &batchFactors)
      : problem(problem), sequenceDims(sequenceDims), batchFactors(batchFactors), producers(problem.producers()),
        needsGradient(problem.needsGradient()), readers(problem.tensors.size()) {
    for (size_t i = 0; i < problem.nodes.size(); ++i)
      for (size_t o = 0; o < problem.nodes[i].operands.size(); ++o)
        readers[size_t(problem.nodes[i].operands[o])].emplace_back(int(i), o);
    found.positions.resize(problem.nodes.size(), -1);
    found.heads.resize(problem.nodes.size(), -1);
    found.inAttention.resize(problem.nodes.size(), false);
  }

  SequenceFactors run() {
    for (size_t i = 0; i < problem.nodes.size(); ++i) found.positions[i] = positionsOf(problem.nodes[i]);
    for (size_t i = 0; i < problem.nodes.size(); ++i) follow(int(i));
    for (size_t i = problem.nodes.size(); i-- > 0;) flowBack(i);
    return std::move(found);
  }

private:
  int64_t positionsOf(const Node &node) const {
    for (size_t r = 0; r < node.results.size(); ++r)
      if (int64_t dim = sequenceDims[size_t(node.results[r])]; dim >= 0)
        if (int64_t factor = majorFactor(node.rule, node.rule.results[r][size_t(dim)]); factor >= 0) return factor;
    for (size_t o = 0; o < node.operands.size(); ++o)
      if (int64_t dim = sequenceDims[size_t(node.operands[o])]; dim >= 0)
        if (int64_t factor = majorFactor(node.rule, node.rule.operands[o][size_t(dim)]); factor >= 0) return factor;
    return -1;
  }

  // From a product of queries and keys through cheap nodes to the product with the values.
  void follow(int score) {
    const Node &node = problem.nodes[size_t(score)];
    if (node.cheap || node.operands.size() != 2 || node.results.size() != 1) return;
    int64_t factors[2];
    for (size_t o : {0, 1}) {
      int64_t dim = sequenceDims[size_t(node.operands[o])];
      factors[o] = dim < 0 ? -1 : majorFactor(node.rule, node.rule.operands[o][size_t(dim)]);
    }
    int64_t query = found.positions[size_t(score)];
    if (factors[0] < 0 || factors[1] < 0 || factors[0] == factors[1]) return;
    if (query != factors[0] && query != factors[1]) return;
    int64_t key = query == factors[0] ? factors[1] : factors[0];
    int64_t keyDim = dimOf(node.rule, node.rule.results[0], key);
    if (keyDim < 0) return;
    AttentionNodes attention;
    attention.score = score;
    attention.queries = node.operands[query == factors[0] ? 0 : 1];
    attention.keys = narrowest(node.operands[query == factors[0] ? 1 : 0]);
    int64_t heads = headsOf(node, score);
    std::map<int, std::pair<int64_t, int64_t>> dims; // by tensor: of the keys and of the heads
    dims[node.results[0]] = {keyDim, dimOf(node.rule, node.rule.results[0], heads)};
    std::map<int, int64_t> core = {{score, heads}};
    for (int i = score + 1; i < int(problem.nodes.size()) && attention.weigh < 0; ++i) {
      const Node &next = problem.nodes[size_t(i)];
      for (size_t o = 0; o < next.operands.size(); ++o) {
        auto made = dims.find(next.operands[o]);
        if (made == dims.end()) continue;
        auto [itsKeys, itsHeads] = made->second;
        auto factorAt = [&](int64_t dim) {
          return dim < 0 ? int64_t(-1) : majorFactor(next.rule, next.rule.operands[o][size_t(dim)]);
        };
        int64_t keyFactor = factorAt(itsKeys), headFactor = factorAt(itsHeads);
        core[i] = headFactor;
        if (!next.cheap) {
          if (next.operands.size() != 2) return;
          attention.weigh = i;
          attention.values = narrowest(next.operands[1 - o]);
          break;
        }
        for (size_t r = 0; r < next.results.size(); ++r)
          dims.try_emplace(next.results[r], dimOf(next.rule, next.rule.results[r], keyFactor),
                           dimOf(next.rule, next.rule.results[r], headFactor));
        break;
      }
    }
    if (attention.weigh < 0) return;
    for (auto [index, factor] : core) {
      found.heads[size_t(index)] = factor;
      found.inAttention[size_t(index)] = true;
      if (index != attention.weigh) attention.weights.push_back(index);
    }
    found.attentions.push_back(attention);
  }

  // The largest factor beside the samples that both operands and the result have.
  int64_t headsOf(const Node &node, int index) const {
    int64_t best = -1;
    for (size_t f = 0; f < node.rule.factors.size(); ++f) {
      int64_t factor = int64_t(f), size = node.rule.factors[f].size;
      bool everywhere = dimOf(node.rule, node.rule.operands[0], factor) >= 0 &&
                        dimOf(node.rule, node.rule.operands[1], factor) >= 0 &&
                        dimOf(node.rule, node.rule.results[0], factor) >= 0;
      if (everywhere && factor != batchFactors[size_t(index)] && size > 1 &&
          (best < 0 || size > node.rule.factors[size_t(best)].size))
        best = factor;
    }
    return best;
  }

  // The tensor from which this one is repeated, moved or scaled.
  int narrowest(int tensor) const {
    int best = tensor;
    for (int producer = producers[size_t(tensor)]; producer >= 0; producer = producers[size_t(tensor)]) {
      const Node &node = problem.nodes[size_t(producer)];
      if (!node.cheap || node.operands.empty()) break;
      tensor = node.operands[0];
      if (problem.tensors[size_t(tensor)].elements() > problem.tensors[size_t(best)].elements()) break;
      best = tensor;
    }
    return best;
  }

  // What only attention reads is split by heads too, so far back as it has any; what has no heads and no gradient
  // (masks) every device has whole.
  void flowBack(size_t index) {
    const Node &node = problem.nodes[index];
    if (found.inAttention[index] || !node.cheap || node.results.size() != 1) return;
    int result = node.results[0];
    if (readers[size_t(result)].empty()) return;
    int64_t dim = -2;
    for (auto [reader, operand] : readers[size_t(result)]) {
      if (!found.inAttention[size_t(reader)]) return;
      const dist::FactorRule &rule = problem.nodes[size_t(reader)].rule;
      int64_t wanted = dimOf(rule, rule.operands[operand], found.heads[size_t(reader)]);
      if (dim != -2 && dim != wanted) return;
      dim = wanted;
    }
    int64_t factor = dim < 0 ? -1 : majorFactor(node.rule, node.rule.results[0][size_t(dim)]);
    if (factor < 0 && needsGradient[size_t(result)]) return;
    found.heads[index] = factor;
    found.inAttention[index] = true;
  }

  const Problem &problem;
  const std::vector<int64_t> &sequenceDims, &batchFactors;
  std::vector<int> producers;
  std::vector<bool> needsGradient;
  std::vector<std::vector<std::pair<int, size_t>>> readers;
  SequenceFactors found;
};

} // namespace

SequenceFactors findSequenceFactors(const Problem &problem, const std::vector<int64_t> &sequenceDims,
                                    const std::vector<int64_t> &batchFactors) {
  return AttentionFinder(problem, sequenceDims, batchFactors).run();
}

} // namespace cleave::planner
