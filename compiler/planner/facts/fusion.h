// The memory-bound work that kernel fusion leaves: which operands and results of cheap operations go through memory,
// and how many kernels are launched. The planner's own model of it, free of code generation: cheap operations between
// two heavy ones that are connected become one kernel, which reads what comes from outside and writes what leaves.
//
//   y = Contract x, w;  a = Add y, b;  g = Gelu a (5 operations);  z = Contract g, v
//   one cluster: reads y and b, writes g; a and what is inside of Gelu never reach memory
//
// Halves side by side are selected from, other parts copied, each by itself. Where a cluster sums up rows, as a
// normalization does, the gradients of parameters, which are sums over columns, are kernels of their own: one for what
// is added before the rows' sums (a bias), one for what comes after (scale and shift).
//
// A reduction over rows longer than a kernel can hold (Device::fusedRow) breaks fusion: every operation of such a
// cluster is a kernel of its own, as the cross-entropy over a vocabulary is in Megatron-LM and PyTorch.
#pragma once
#include "compiler/cluster/cluster.h"
#include "compiler/planner/facts/sequence.h"

namespace cleave::planner {

// The work of one cheap node; all zero for heavy ones.
struct FusedWork {
  double kernels = 0;         // launches of its cluster, shared out among the cluster's nodes by their traffic
  double columnSums = 0;      // launches of its cluster's backward pass besides, shared out likewise
  bool isFused = true;        // false: a kernel of its own
  int cluster = -1;           // a node of its cluster, the same for all of them
  std::vector<int> sources;   // an operand each: the tensor in memory that it is read from, views looked through
  std::vector<double> reads;  // an operand each: the part of its source's bytes that is read, 0..1
  std::vector<double> writes; // a result each: 0 or 1
};

// Which tensors are kept in memory from the forward pass to the backward pass? Not all that the backward operations
// read (Tensor::saved): a fused kernel makes what is inside of it again from what stands in memory anyway.
//
//   y = Contract x, w;  u = Mul y, y;  e = Erf u;  g = Mul e, y;  z = Contract g, v      the backward reads y, u, e, g
//   kept: x and g (operands of the products) and y (the cluster's input), but not u and e
//
// Sums and maxima of rows are kept, and so are masks (booleans): a byte each, as PyTorch and Megatron-LM keep those of
// dropout.
struct Fusion {
  std::vector<FusedWork> work; // per node
  std::vector<bool> kept;      // per tensor
  std::vector<bool> madeAgain; // and of the others: needed, and made again
};
// Sizes are weighed against each other with the whole batch, so that a problem built with fewer samples gives the same.
Fusion findFusion(const Graph &graph, const Device &device);

// Per node: the core of attention, from the product of queries and keys up to, but without, the one with the values.
// Its tensors have an element for every pair of positions. Selective recomputation does it again (Korthikanti et al.
// 2022, section 5); a device with Device::fusedAttention has it on the chip (Dao et al. 2022): no traffic, nothing
// kept, one product more in the backward pass.
std::vector<bool> findAttentionCore(const Graph &graph, const SequenceFactors &sequence);

} // namespace cleave::planner
