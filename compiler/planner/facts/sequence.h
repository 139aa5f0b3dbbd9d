// Which dimension of every tensor counts positions of a sequence (tokens, time steps), and which factor of every node
// context parallelism (mesh axis cp) splits.
//
// The dimension is that of a matrix product with a weight that is neither the sample nor in the weight; it flows from
// there to every tensor that the factor rules connect: ([b,s,k],[k,n]) -> [b,s,n] makes dimension 1 the sequence.
//
// Attention is where two sequences meet: scores ([b,q,h,d],[b,k,h,d]) -> [b,h,q,k]. On a ring the queries stay split
// (positions); Ulysses (Jacobs et al. 2023) splits the heads from the scores to the product with the values instead.
#pragma once
#include "compiler/planner/facts/graph.h"

namespace cleave::planner {

// Per tensor; -1: none.
LogicalAxis findSequenceDims(const Graph &graph);

// One attention: its two products, and what they multiply. Keys and values as they are before they are repeated for
// every head (grouped queries).
struct AttentionNodes {
  int score = -1, weigh = -1;               // nodes
  int queries = -1, keys = -1, values = -1; // tensors
  std::vector<int> weights;                 // nodes: the scores, and what makes weights of them
};

struct SequenceFactors {
  std::vector<int64_t> positions; // per node: the factor that counts positions; -1: none
  std::vector<int64_t> heads; // per node: in attention and what only it reads, the factor that counts heads; -1: none
  std::vector<bool> inAttention; // per node: Ulysses splits its heads, or positions where they do not divide
  std::vector<AttentionNodes> attentions;
};
SequenceFactors findSequenceFactors(const Graph &graph, const LogicalAxis &sequenceDims);

} // namespace cleave::planner
