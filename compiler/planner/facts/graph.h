// A problem's graph as all facts look at it, found once: who makes and who reads each tensor, what has gradients, which
// factor of each node counts samples.
//
//   y = Contract x, w;  z = Relu y      producers[y] = 0, readers[y] = {(1, 0)}: node 1 reads it as its first operand
#pragma once
#include "compiler/planner/problem/problem.h"
#include <vector>

namespace cleave::planner {

struct Graph {
  explicit Graph(const Problem &problem);

  const Problem &problem;
  std::vector<int> producers;                               // per tensor: node; -1: none
  std::vector<std::vector<std::pair<int, size_t>>> readers; // per tensor: node and operand
  std::vector<bool> needsGradient;                          // per tensor
  std::vector<bool> areWeights; // per tensor: trained, as it lies or laid out otherwise (Problem::areWeights)
  std::vector<int64_t> batchDims, batchFactors; // per tensor; per node

  const Node *producerOf(int tensor) const {
    const int node = producers[size_t(tensor)];
    return node < 0 ? nullptr : &problem.nodes[size_t(node)];
  }
  bool isCheap(int node) const { return problem.nodes[size_t(node)].cheap; }
  // Its place among the results of the node that makes it.
  size_t resultIndex(int tensor) const;
};

// Is one of the tensors (nodes) in the set; are all of them?
bool anyIn(const std::vector<bool> &set, const std::vector<int> &members);
bool allIn(const std::vector<bool> &set, const std::vector<int> &members);

// A parameter that something is multiplied with or looked up in, and no bias or scale.
bool isMatrix(const Tensor &tensor);
// Is the factor in one of the dimensions?
bool indexes(const dist::TensorFactors &dims, int64_t factor);
// The factor of a dimension that a mesh axis would split; -1: none, or no dimension.
int64_t factorAt(const dist::FactorRule &rule, const dist::TensorFactors &dims, int64_t dim);

// One logical axis of the model (positions, experts or heads): the dimension of each tensor that counts it, propagated
// from where it is known through factor rules.
class LogicalAxis {
public:
  explicit LogicalAxis(const Problem &problem, bool onlyActivations = false)
      : of(problem.tensors.size(), -1), problem(problem), onlyActivations(onlyActivations) {}
  std::vector<int64_t> of; // per tensor; -1: none

  // A node's factor that counts it, as results have it, and else operands; -1: none.
  int64_t factorOf(const Node &node) const;
  // Gives the dimension to the node's operands and results that have the factor and no such dimension yet. Did any get
  // it?
  bool propagate(const Node &node, int64_t factor);

private:
  const Problem &problem;
  bool onlyActivations;
};

} // namespace cleave::planner
