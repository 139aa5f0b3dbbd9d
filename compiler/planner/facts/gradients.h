// Which gradients lie in memory beside those of an operation at work, in the backward pass. They are as large and live
// as long as the tensors whose gradients they are, the other way round: from the last reader to the producer.
//
//   y = Contract x, w;  z = Add y, b;  h = Add x, z     x's gradient waits while those of z, y, w are computed
//
// Each kernel that reads a tensor makes a term of its gradient, and all of them wait for the last, which is the first
// to read it. The term of a slice is as large as the slice: terms that lie side by side are joined (codegen:
// JoinParts). That of a concatenation's operand is read where it lies, in the gradient of all of it.
#pragma once
#include "compiler/planner/facts/graph.h"
#include <functional>

namespace cleave::planner {

// Gradients that wait while those of nodes between are computed. How much of one a device has does not follow from the
// nodes that it passes: a table of positions has no samples, what waits past it has.
struct WaitingGradients {
  struct One {
    struct Term {
      int at = 0;    // node: it waits past those between `first` and this
      int like = -1; // tensor that is as large; -1: as large as the gradient
    };
    std::vector<int> tensors; // that it is the gradient of and that stand in memory; a sum's is also its terms'
    int first = 0, last = 0;  // the node that makes the tensor, and the last that reads it
    std::vector<Term> terms = {};
    std::vector<int> readers = {}; // of these nodes: those that make a term of it themselves
  };
  std::vector<One> all;
  std::vector<bool> hasBackward; // per node: without one, nothing is computed there that a gradient could wait for
  // Per node and operand: a term of its gradient waits there for the one that is made now.
  std::vector<std::vector<bool>> waitsForOperand;
  // Per node: the bytes of others that wait, given a tensor's.
  std::vector<double> past(const std::function<double(int)> &bytes) const;
};
// `inMemory`: per tensor. `kernels`: per node, the same number for what one kernel does.
WaitingGradients waitingGradients(const Graph &graph, const std::vector<bool> &inMemory,
                                  const std::vector<int> &kernels);

// Per tensor: bytes of its gradient for a byte of it. Gradients of weights in 16 bits, and of what they are cut into
// before they are used, are sums in 32.
std::vector<double> gradientRatios(const Graph &graph);

// Where a backward pass is two functions, what stays of a node from the first to the second, for the gradient of its
// weight.
struct HeldForWeights {
  // The gradient of its result. Only one operation counts among those that pass a gradient on as it is (a bias is
  // added).
  bool gradient = false;
  int operand = -1; // what the weight is multiplied with, where the backward pass makes it again
};
// Per node. `kept`: per tensor, from the forward pass on.
std::vector<HeldForWeights> heldForWeights(const Graph &graph, const std::vector<bool> &kept);

} // namespace cleave::planner
