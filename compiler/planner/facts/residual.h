// Where Megatron-LM's sequence parallelism splits the sequence: normalizations, and what of the residual stream stands
// behind them, up to the next operation of weight. Found from the factor rules alone.
//
//   m = ReduceSum x[b,s,h] over h;  y = (x - m) ...;  Contract y, w       m and all that is made of it before the
//                                                                       product: along s
//
// Not so in attention, whose softmax sums over keys, and after the product with the vocabulary, whose loss sums over
// classes. Source: Korthikanti et al. 2022, section 4.2.2.
#pragma once
#include "compiler/planner/facts/sequence.h"

namespace cleave::planner {

// Per node. `vocabularyFactors`: vocabulary.h.
std::vector<bool> findResidualNodes(const Problem &problem, const std::vector<int64_t> &sequenceDims,
                                    const SequenceFactors &sequence, const std::vector<int64_t> &vocabularyFactors);

} // namespace cleave::planner
