#include "compiler/planner/split/laying.h"

namespace cleave::planner {

bool Laying::can(size_t axis, size_t node, int64_t factor) const {
  if (factor < 0 || axes[axis].factors[node] >= 0) return false;
  const dist::FactorRule &rule = problem.nodes[node].rule;
  dist::Axes together;
  int64_t ways = axes[axis].size;
  for (const LaidAxis &other : axes)
    if (other.factors[node] == factor) {
      together.push_back(other.name);
      ways *= other.size;
    }
  together.push_back(axes[axis].name);
  if (!dist::canSplit(mesh, rule, factor, together)) return false;
  if (factor != facts.batchFactors[node]) return true;
  // The problem may be built with another number of samples than a microbatch has.
  int64_t samples = rule.factors[size_t(factor)].size * (problem.batch / setting.microbatches);
  return samples % problem.samples == 0 && samples / problem.samples % (setting.batchWays() * ways) == 0;
}

bool Laying::give(size_t axis, size_t node, int64_t factor) {
  if (!can(axis, node, factor)) return false;
  axes[axis].factors[node] = factor;
  return true;
}

void Laying::followReaders() {
  for (size_t i = problem.nodes.size(); i-- > 0;) {
    const Node &node = problem.nodes[i];
    if (!node.cheap || node.results.empty() || facts.readers[size_t(node.results[0])].empty()) continue;
    const auto [reader, operand] = facts.readers[size_t(node.results[0])][0];
    const dist::FactorRule &rule = problem.nodes[size_t(reader)].rule;
    for (size_t axis = 0; axis < axes.size(); ++axis) {
      const int64_t dim = dimOf(rule, rule.operands[operand], axes[axis].factors[size_t(reader)]);
      give(axis, i, factorAt(node.rule, node.rule.results[0], dim));
    }
  }
}

void Laying::followOperands() {
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    for (size_t axis = 0; node.cheap && axis < axes.size(); ++axis)
      for (size_t o = 0; o < node.operands.size(); ++o)
        if (const Node *made = facts.producerOf(node.operands[o])) {
          const int64_t factor = axes[axis].factors[size_t(facts.producers[size_t(node.operands[o])])];
          const int64_t dim = dimOf(made->rule, made->rule.results[facts.resultIndex(node.operands[o])], factor);
          give(axis, i, factorAt(node.rule, node.rule.operands[o], dim));
        }
  }
}

} // namespace cleave::planner
