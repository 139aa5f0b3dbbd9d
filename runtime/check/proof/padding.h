// The step with padded sizes beside the one without: on one device, before it is split.
#pragma once
#include "graph.pb.h"
#include "runtime/check/proof/prove.h"

namespace cleave::proof {

// Where persistent tensors are zero at padded entries before the step, they are so after it, and all else is as in the
// step without padding. So a plan that computes `padded` computes `graph`. `name`: "step" or "evaluate".
void comparePadding(const plan::Plan &plan, const plan::Graph &padded, const plan::Graph &graph, Proof &proof,
                    size_t most, bool stops, const std::string &name, int64_t microbatches);

} // namespace cleave::proof
