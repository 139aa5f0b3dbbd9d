// Where Megatron-LM splits the vocabulary: the factor that `--like megatron` makes tensor parallelism take, found from
// the factor rules alone.
//
//   x = Gather table[v,h], tokens[b,s]      v: only the weight has it, and it is summed over: each device looks up the
//                                           rows it has, the others are zero
//   y = Contract x[b,s,h], head[h,v]        v: the loss takes the maximum over it (softmax): each device makes the
//                                           logits of its part of the vocabulary, and the loss is summed up from parts
//
// Source: Shoeybi et al. 2019, section 3 (VocabParallelEmbedding, vocab_parallel_cross_entropy).
#pragma once
#include "compiler/planner/problem/problem.h"
#include <cstdint>
#include <vector>

namespace cleave::planner {

// Per node: the vocabulary's factor; -1: it has none, or no weight.
std::vector<int64_t> findVocabularyFactors(const Problem &problem);

} // namespace cleave::planner
