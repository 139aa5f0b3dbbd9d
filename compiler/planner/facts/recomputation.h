// The units of recomputation: segments. A segment's results are dropped after the forward pass and computed again, one
// segment at a time, in the backward pass, from what flows into the segment.
//
//   full        a repetition of a block is a segment. A model that is not made of blocks is cut where little crosses,
//               so that what is kept at the cuts and the largest segment are least together
//   selective   of every segment attention only: from the product of queries and keys to the weights of the values,
//               whose bytes grow with the square of the sequence (Korthikanti et al. 2022, section 5)
//   activations of every segment what elementwise operations make for products of what is kept anyway: results of
//               GELUs and norms (activations_again.h)
//
//   [embeddings] [layer 0] [layer 1] [head]     segments -1 0 1 -1: embeddings and head keep what they make
//
// Only the part of a segment that its backward pass reads is computed again, and what that is made from: a layer's last
// product, which is added to the residual stream and read by nobody in the layer, is not (a third of a GPT layer's
// products by weights). Software that runs a layer's whole forward pass again does it too (Constraints::recomputesAll).
#pragma once
#include "compiler/planner/facts/activations_again.h"
#include "compiler/planner/facts/sequence.h"
#include "compiler/planner/facts/shared_table.h"
#include "compiler/planner/facts/stage_units.h"
#include "compiler/planner/problem/decision.h"

namespace cleave::planner {

struct RecomputeSegments {
  SharedTable<int> segmentOf;    // per node; -1: never computed again
  SharedTable<bool> isAttention; // per node: selective recomputation computes it again
  SharedTable<bool> isNeeded;    // per tensor made in a segment: the backward pass of the segment needs it again
  SharedTable<ActivationsAgain> activations = {}; // per node

  // Is the node computed again where its segment is recomputed so?
  bool again(Recompute how, int node) const {
    return segmentOf[size_t(node)] >= 0 &&
           (how == Recompute::Full || (how == Recompute::Selective && isAttention[size_t(node)]) ||
            (how == Recompute::Activations && activations[size_t(node)].isAgain));
  }
  bool any() const;
  bool hasActivations() const;
};

// `unitOfNode`: index into `units`. `all`: all of a segment is needed.
RecomputeSegments findSegments(const Graph &graph, const std::vector<Unit> &units, const std::vector<int> &unitOfNode,
                               const SequenceFactors &sequence, bool all = false);

} // namespace cleave::planner
