#include "compiler/planner/split/laying.h"
#include <algorithm>

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
    if (!node.cheap || node.results.empty()) continue;
    int result = node.results[0];
    for (size_t axis = 0; axis < axes.size(); ++axis)
      for (auto [reader, operand] : facts.readers[size_t(result)]) {
        const dist::FactorRule &rule = problem.nodes[size_t(reader)].rule;
        int64_t dim = dimOf(rule, rule.operands[operand], axes[axis].factors[size_t(reader)]);
        if (dim >= 0) give(axis, i, majorFactor(node.rule, node.rule.results[0][size_t(dim)]));
        break;
      }
  }
}

void Laying::followOperands() {
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    for (size_t axis = 0; node.cheap && axis < axes.size(); ++axis)
      for (size_t o = 0; o < node.operands.size() && axes[axis].factors[i] < 0; ++o) {
        int producer = facts.producers[size_t(node.operands[o])];
        if (producer < 0) continue;
        const Node &made = problem.nodes[size_t(producer)];
        size_t r = size_t(std::find(made.results.begin(), made.results.end(), node.operands[o]) - made.results.begin());
        int64_t dim = dimOf(made.rule, made.rule.results[r], axes[axis].factors[size_t(producer)]);
        if (dim >= 0) give(axis, i, majorFactor(node.rule, node.rule.operands[o][size_t(dim)]));
      }
  }
}

} // namespace cleave::planner
