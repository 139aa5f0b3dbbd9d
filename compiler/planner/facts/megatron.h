// Where Megatron-LM splits what no other preset does, found from the factor rules alone.
//
// The vocabulary (`--like megatron-2021`; Shoeybi et al. 2019, section 3):
//   x = Gather table[v,h], tokens[b,s]      v: only the weight has it, and it is summed over: each device looks up the
//                                           rows it has, the others are zero
//   y = Contract x[b,s,h], head[h,v]        v: the loss takes the maximum over it (softmax): each device makes the
//                                           logits of its part of the vocabulary, and the loss is summed up from parts
//
// The sequence (`megatron`, `megatron-sp`; Korthikanti et al. 2022, section 4.2.2): in normalizations, and what of the residual
// stream stands behind them, up to the next operation of weight:
//   m = ReduceSum x[b,s,h] over h;  y = (x - m) ...;  Contract y, w       m and all that is made of it before the
//                                                                       product: along s
// Not so in attention, whose softmax sums over keys, and after the product with the vocabulary, whose loss sums over
// classes.
#pragma once
#include "compiler/planner/facts/sequence.h"

namespace cleave::planner {

// Per node: the vocabulary's factor; -1: it has none, or no weight.
std::vector<int64_t> findVocabularyFactors(const Problem &problem);
// Per node: of the residual stream.
std::vector<bool> findResidualNodes(const Problem &problem, const std::vector<int64_t> &sequenceDims,
                                    const SequenceFactors &sequence, const std::vector<int64_t> &vocabularyFactors);

} // namespace cleave::planner
