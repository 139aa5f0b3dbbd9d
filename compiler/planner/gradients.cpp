#include "compiler/planner/gradients.h"
#include <algorithm>
#include <numeric>
#include <set>

namespace cleave::planner {
namespace {

// Tensors whose gradients are one and the same.
class SameGradients {
public:
  explicit SameGradients(const Problem &problem) : parent(problem.tensors.size()) {
    std::iota(parent.begin(), parent.end(), 0);
    std::vector<int> readers(problem.tensors.size(), 0);
    for (const Node &node : problem.nodes)
      for (int tensor : node.operands) ++readers[size_t(tensor)];
    for (const Node &node : problem.nodes) {
      if (node.results.size() != 1 || (node.op != "Add" && node.op != "Sum" && node.op != "Reshape")) continue;
      const Tensor &result = problem.tensors[size_t(node.results[0])];
      for (int tensor : node.operands) {
        const Tensor &operand = problem.tensors[size_t(tensor)];
        if (operand.kind == TensorKind::Activation && readers[size_t(tensor)] == 1 &&
            operand.elements() == result.elements())
          parent[size_t(of(tensor))] = of(node.results[0]);
      }
    }
  }
  int of(int tensor) const {
    while (parent[size_t(tensor)] != tensor) tensor = parent[size_t(tensor)];
    return tensor;
  }

private:
  std::vector<int> parent;
};

} // namespace

std::vector<double> gradientsPast(const Problem &problem, const std::vector<bool> &inMemory) {
  SameGradients same(problem);
  std::vector<bool> needsGradient = problem.needsGradient();
  std::vector<int> made = problem.producers();
  size_t count = problem.nodes.size();
  // Of each gradient: the first node that makes one of its tensors, and the last one that reads one.
  std::vector<int> first(problem.tensors.size(), int(count)), last(problem.tensors.size(), -1);
  std::vector<double> bytes(problem.tensors.size(), 0.0);
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    if (made[t] < 0 || !needsGradient[t]) continue;
    size_t of = size_t(same.of(int(t)));
    first[of] = std::min(first[of], made[t]);
    if (inMemory[t]) bytes[of] = std::max(bytes[of], problem.tensors[t].bytes());
  }
  for (size_t i = 0; i < count; ++i)
    for (int tensor : problem.nodes[i].operands)
      if (made[size_t(tensor)] >= 0 && needsGradient[size_t(tensor)]) last[size_t(same.of(tensor))] = int(i);
  std::vector<double> change(count + 1, 0.0);
  for (size_t t = 0; t < bytes.size(); ++t)
    if (last[t] > first[t] + 1) {
      change[size_t(first[t]) + 1] += bytes[t];
      change[size_t(last[t])] -= bytes[t];
    }
  std::partial_sum(change.begin(), change.end(), change.begin());
  change.pop_back();
  return change;
}

std::vector<bool> heldGradients(const Problem &problem) {
  SameGradients same(problem);
  std::vector<bool> holds(problem.nodes.size(), false);
  std::set<int> counted;
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    bool trains = std::ranges::any_of(node.operands, [&](int t) { return problem.tensors[size_t(t)].trainable; });
    if (trains && node.results.size() == 1) holds[i] = counted.insert(same.of(node.results[0])).second;
  }
  return holds;
}

} // namespace cleave::planner
