// The values that recomputation of activations drops after the forward pass: results of elementwise operations that
// products read, where everything that they are made of is kept anyway. Megatron-LM's `--recompute-modules mlp_act
// layernorm` are two cases.
//
//   y = Contract x, w;  g = Gelu y;  z = Contract g, v      kept: x, y (GELU's derivative reads it), and no longer g
//   backward:  g' = Gelu y;  dv = Contract g', dz;  ...
//
// A normalized value is made from the norm's input and its rows' sums. One kernel makes each value again: it reads what
// is kept, makes once more what stood inside of the forward kernel, and writes the value for the product.
#pragma once
#include "compiler/planner/facts/graph.h"

namespace cleave::planner {

// One node's part of it.
struct ActivationsAgain {
  bool isAgain = false;     // its result is dropped and computed again
  bool computes = false;    // or its arithmetic is done again, inside of such a kernel
  std::vector<int> sources; // its result is what a product reads: activations in memory that the kernel reads
};

// Per node. `kept`, `madeAgain`: Fusion's. `segmentOf`: per node (recomputation.h); others than segments keep all.
std::vector<ActivationsAgain> findActivationsAgain(const Graph &graph, const std::vector<bool> &kept,
                                                   const std::vector<bool> &madeAgain,
                                                   const std::vector<int> &segmentOf);

} // namespace cleave::planner
