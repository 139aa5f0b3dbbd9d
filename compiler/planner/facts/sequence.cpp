#include "compiler/planner/facts/sequence.h"
#include <algorithm>
#include <map>

namespace cleave::planner {

LogicalAxis findSequenceDims(const Graph &graph) {
  const Problem &problem = graph.problem;
  LogicalAxis dims(problem, true);
  auto visit = [&](size_t i) {
    const Node &node = problem.nodes[i];
    auto weighs = [&](int tensor) { return !node.cheap && isMatrix(problem.tensors[size_t(tensor)]); };
    const bool hasWeight = std::ranges::any_of(node.operands, weighs);
    for (int64_t f = 0; hasWeight && f < int64_t(node.rule.factors.size()); ++f) {
      const dist::Factor &factor = node.rule.factors[size_t(f)];
      bool isSequence = f != graph.batchFactors[i] && factor.size > 1 && factor.kind == dist::Factor::Parallel;
      for (size_t o = 0; o < node.operands.size(); ++o)
        isSequence = isSequence && !(weighs(node.operands[o]) && indexes(node.rule.operands[o], f));
      if (isSequence) dims.propagate(node, f);
    }
    for (size_t o = 0; o < node.operands.size() && !hasWeight; ++o)
      dims.propagate(node, factorAt(node.rule, node.rule.operands[o], dims.of[size_t(node.operands[o])]));
    for (size_t r = 0; r < node.results.size(); ++r)
      dims.propagate(node, factorAt(node.rule, node.rule.results[r], dims.of[size_t(node.results[r])]));
  };
  for (size_t i = 0; i < problem.nodes.size(); ++i) visit(i);
  for (size_t i = problem.nodes.size(); i-- > 0;) visit(i); // reaches what stands before the first product
  return dims;
}

namespace {

class AttentionFinder {
public:
  AttentionFinder(const Graph &graph, const LogicalAxis &sequenceDims)
      : graph(graph), problem(graph.problem), sequenceDims(sequenceDims) {
    found.heads.resize(problem.nodes.size(), -1);
    found.inAttention.resize(problem.nodes.size(), false);
  }

  SequenceFactors run() {
    for (const Node &node : problem.nodes) found.positions.push_back(sequenceDims.factorOf(node));
    for (size_t i = 0; i < problem.nodes.size(); ++i) follow(int(i));
    for (size_t i = problem.nodes.size(); i-- > 0;) flowBack(i);
    return std::move(found);
  }

private:
  // From a product of queries and keys through cheap nodes to the product with the values.
  void follow(int score) {
    const Node &node = problem.nodes[size_t(score)];
    if (node.cheap || node.operands.size() != 2 || node.results.size() != 1) return;
    int64_t factors[2];
    for (size_t o : {0, 1})
      factors[o] = factorAt(node.rule, node.rule.operands[o], sequenceDims.of[size_t(node.operands[o])]);
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
    int64_t heads = headFactorOf(node, score);
    std::map<int, std::pair<int64_t, int64_t>> dims; // by tensor: of the keys and of the heads
    dims[node.results[0]] = {keyDim, dimOf(node.rule, node.rule.results[0], heads)};
    std::map<int, int64_t> core = {{score, heads}};
    for (int i = score + 1; i < int(problem.nodes.size()) && attention.weigh < 0; ++i) {
      const Node &next = problem.nodes[size_t(i)];
      for (size_t o = 0; o < next.operands.size(); ++o) {
        auto made = dims.find(next.operands[o]);
        if (made == dims.end()) continue;
        auto [itsKeys, itsHeads] = made->second;
        const int64_t keyFactor = factorAt(next.rule, next.rule.operands[o], itsKeys),
                      headFactor = factorAt(next.rule, next.rule.operands[o], itsHeads);
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
  int64_t headFactorOf(const Node &node, int index) const {
    int64_t best = -1;
    for (size_t f = 0; f < node.rule.factors.size(); ++f) {
      int64_t factor = int64_t(f), size = node.rule.factors[f].size;
      bool everywhere = dimOf(node.rule, node.rule.operands[0], factor) >= 0 &&
                        dimOf(node.rule, node.rule.operands[1], factor) >= 0 &&
                        dimOf(node.rule, node.rule.results[0], factor) >= 0;
      if (everywhere && factor != graph.batchFactors[size_t(index)] && size > 1 &&
          (best < 0 || size > node.rule.factors[size_t(best)].size))
        best = factor;
    }
    return best;
  }

  // The tensor from which this one is repeated, moved or scaled.
  int narrowest(int tensor) const {
    int best = tensor;
    for (const Node *node = graph.producerOf(tensor); node; node = graph.producerOf(tensor)) {
      if (!node->cheap || node->operands.empty()) break;
      tensor = node->operands[0];
      if (problem.tensors[size_t(tensor)].elements() > problem.tensors[size_t(best)].elements()) break;
      best = tensor;
    }
    return best;
  }

  // A tensor that only attention reads is split by heads too, so far back as it has any; every device has all of a
  // tensor without heads and gradient (a mask).
  void flowBack(size_t index) {
    const Node &node = problem.nodes[index];
    if (found.inAttention[index] || !node.cheap || node.results.size() != 1) return;
    int result = node.results[0];
    if (graph.readers[size_t(result)].empty()) return;
    int64_t dim = -2;
    for (auto [reader, operand] : graph.readers[size_t(result)]) {
      if (!found.inAttention[size_t(reader)]) return;
      const dist::FactorRule &rule = problem.nodes[size_t(reader)].rule;
      int64_t wanted = dimOf(rule, rule.operands[operand], found.heads[size_t(reader)]);
      if (dim != -2 && dim != wanted) return;
      dim = wanted;
    }
    const int64_t factor = factorAt(node.rule, node.rule.results[0], dim);
    if (factor < 0 && graph.needsGradient[size_t(result)]) return;
    found.heads[index] = factor;
    found.inAttention[index] = true;
  }

  const Graph &graph;
  const Problem &problem;
  const LogicalAxis &sequenceDims;
  SequenceFactors found;
};

} // namespace

SequenceFactors findSequenceFactors(const Graph &graph, const LogicalAxis &sequenceDims) {
  return AttentionFinder(graph, sequenceDims).run();
}

} // namespace cleave::planner
