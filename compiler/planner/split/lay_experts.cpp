// Expert parallelism: a node on stacked weights has its own experts; all others have their own samples. Where samples
// are dispatched to experts as a product with a mask the change between the two is an all-to-all, as in GShard; where
// every expert computes every sample, a gather and a reduce-scatter.
#include "compiler/planner/split/laid_axes.h"
#include "compiler/planner/split/laying.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::planner {
namespace {

bool isStacked(const Tensor &tensor) { return tensor.kind == TensorKind::Parameter && tensor.dims.size() >= 3; }

// Experts are what a stacked weight, what it multiplies and the result all have, the weight in a dimension of their own,
// unlike the groups of a convolution; and what a grouped product's weight alone has.
bool countsExperts(const Problem &problem, const Node &node, int64_t factor) {
  if (node.cheap || node.results.empty() || node.operands.size() < 2) return false;
  if (groupFactor(node.rule) == factor) return isStacked(problem.tensors[size_t(node.operands[1])]);
  if (dimOf(node.rule, node.rule.results[0], factor) < 0) return false;
  bool inWeight = false;
  for (size_t o = 0; o < node.operands.size(); ++o) {
    const int64_t dim = dimOf(node.rule, node.rule.operands[o], factor);
    if (dim < 0) return false;
    inWeight |= isStacked(problem.tensors[size_t(node.operands[o])]) && node.rule.operands[o][size_t(dim)].size() == 1;
  }
  return inWeight;
}

class ExpertWalk {
public:
  explicit ExpertWalk(Laying &laying)
      : laying(laying), problem(laying.problem), facts(laying.facts), experts(problem), layouts(problem.tensors.size()),
        one{{{laying.axes[0].name, laying.axes[0].size}}} {}

  Status run() {
    findExperts();
    bool isUsed = false;
    for (size_t i = 0; i < problem.nodes.size(); ++i) isUsed |= visit(i);
    if (isUsed) return Status::ok();
    int64_t count = laying.axes[0].size;
    return {
        ErrorKind::Usage,
        fmt::format("--mesh ep={}: no product of this model has weights stacked as [experts, in, out] with a number "
                    "of experts that {} divides. Experts that are modules of their own are stacked where the sum "
                    "over them has the same operations for each, times its own part of the router's result",
                    count, count)};
  }

private:
  // The dimension goes from the products with stacked weights wherever the factor rules lead.
  void findExperts() {
    for (const Node &node : problem.nodes)
      for (size_t f = 0; f < node.rule.factors.size(); ++f)
        if (countsExperts(problem, node, int64_t(f))) experts.propagate(node, int64_t(f));
    for (bool changed = true; changed;) {
      changed = false;
      for (const Node &node : problem.nodes) changed |= experts.propagate(node, experts.factorOf(node));
    }
  }

  bool isOnExperts(int tensor) const {
    const int64_t dim = experts.of[size_t(tensor)];
    return dim >= 0 && size_t(dim) < layouts[size_t(tensor)].dims.size() &&
           !layouts[size_t(tensor)].dims[size_t(dim)].empty();
  }

  // Assigns ep to a factor of node i. Returns true if the node is a product whose stacked weights are split by expert.
  bool visit(size_t i) {
    const Node &node = problem.nodes[i];
    const int64_t expertFactor = experts.factorOf(node), batchFactor = facts.batchFactors[i];
    bool readsWeight = false, readsStack = false, readsActivation = false, readsExperts = false;
    double read = 0, made = 0; // elements
    for (int tensor : node.results) made += double(problem.tensors[size_t(tensor)].elements());
    for (size_t o = 0; o < node.operands.size(); ++o) {
      const Tensor &tensor = problem.tensors[size_t(node.operands[o])];
      readsWeight |= tensor.kind == TensorKind::Parameter;
      readsStack |= isStacked(tensor) && dimOf(node.rule, node.rule.operands[o], expertFactor) >= 0;
      readsActivation |= tensor.kind != TensorKind::Parameter && tensor.kind != TensorKind::Constant;
      readsExperts |= isOnExperts(node.operands[o]);
      read += double(tensor.elements());
    }
    int64_t chosen = batchFactor;
    if (readsStack && !node.cheap)
      chosen = expertFactor;
    else if (node.cheap && readsExperts)
      chosen = expertFactor;
    else if (!readsActivation || (node.cheap && expertFactor >= 0 && made > read))
      chosen = -1; // The readers decide; the input of a broadcast is resharded before it is enlarged.
    else if (!node.cheap && !readsWeight && expertFactor >= 0 && expertFactor != batchFactor)
      chosen = bytes(i, expertFactor) < bytes(i, batchFactor) ? expertFactor : batchFactor;
    bool isAssigned = laying.give(0, i, chosen);
    if (!isAssigned && readsActivation && chosen != batchFactor) laying.giveSamples(0, i);
    dist::FactorSharding split = splitBy(node, laying.axes[0].factors[i]);
    for (size_t r = 0; r < node.results.size(); ++r) {
      layouts[size_t(node.results[r])] = dist::resultSharding(node.rule, split, r);
      layouts[size_t(node.results[r])].partial.clear();
    }
    return isAssigned && readsStack && !node.cheap;
  }

  dist::FactorSharding splitBy(const Node &node, int64_t factor) const {
    dist::FactorSharding split(node.rule.factors.size());
    if (factor >= 0) split[size_t(factor)] = {laying.axes[0].name};
    return split;
  }

  // The bytes that a device sends when a node is split so: operands come to it, a sum is scattered over the samples,
  // and what experts read goes to them.
  double bytes(size_t i, int64_t factor) const {
    if (!laying.can(0, i, factor)) return factor < 0 ? 0 : 1e300;
    const Node &node = problem.nodes[i];
    dist::FactorSharding split = splitBy(node, factor);
    double sum = 0;
    auto add = [&](int tensor, const dist::Sharding &from, const dist::Sharding &to) {
      double size = problem.tensors[size_t(tensor)].bytes();
      for (const dist::Axes &axes : from.dims) size /= double(one.groupSize(axes));
      for (const dist::ReshardStep &step : dist::reshard(one, from, to)) {
        sum += dist::trafficBytes(one, step, size);
        size = dist::bytesAfter(one, step, size);
      }
    };
    for (size_t o = 0; o < node.operands.size(); ++o)
      if (const dist::Sharding &from = layouts[size_t(node.operands[o])]; !from.dims.empty())
        add(node.operands[o], from, dist::operandSharding(node.rule, split, o));
    for (size_t r = 0; r < node.results.size(); ++r) {
      dist::Sharding to = dist::Sharding::replicated(node.rule.results[r].size());
      int64_t dim = experts.of[size_t(node.results[r])];
      if (dim < 0) dim = facts.batchDims[size_t(node.results[r])];
      if (dim >= 0) to.dims[size_t(dim)] = {laying.axes[0].name};
      add(node.results[r], dist::resultSharding(node.rule, split, r), to);
    }
    return sum;
  }

  Laying &laying;
  const Problem &problem;
  const ProblemFacts &facts;
  LogicalAxis experts;
  std::vector<dist::Sharding> layouts;
  dist::Mesh one;
};

} // namespace

std::vector<int64_t> expertCounts(const Problem &problem) {
  std::vector<int64_t> counts;
  for (const Node &node : problem.nodes)
    for (size_t f = 0; f < node.rule.factors.size(); ++f)
      if (countsExperts(problem, node, int64_t(f))) counts.push_back(node.rule.factors[f].size);
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

Status layExperts(Laying &laying) { return ExpertWalk(laying).run(); }

} // namespace cleave::planner
