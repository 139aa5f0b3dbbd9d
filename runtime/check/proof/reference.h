// The unsplit step on symbols: the reference graph's functions, one after the other, from persistent tensors that are
// names.
#pragma once
#include "graph.pb.h"
#include "runtime/check/proof/operations.h"

namespace cleave::proof {

class Reference {
public:
  Reference(const plan::Graph &graph, Store &store) : graph(graph), store(store), operations(store) {}

  std::map<std::string, Tensor> state; // persistent tensors by name
  // The function's outputs by name. Throws Unproved; `node` is then where.
  std::map<std::string, Tensor> run(const std::string &function, int64_t microbatch);
  // Counts, accumulates all microbatches but the last, then ends the step.
  std::map<std::string, Tensor> step(int64_t microbatches);
  bool has(const std::string &function) const;
  const plan::GraphNode *node = nullptr;

private:
  void accumulate(const std::string &function, int64_t microbatches);

  const plan::Graph &graph;
  Store &store;
  Operations operations;
};

} // namespace cleave::proof
