// The ways one node can run under tensor parallelism, from its factor rule alone.
#pragma once
#include "compiler/planner/split/split_model.h"

namespace cleave::planner {

// Every candidate the rule and the constraints allow, "none" first; priced. Never empty without pins.
std::vector<Candidate> nodeCandidates(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                                      const Constraints &constraints, const SplitModel &model, int node);

// Pins that name this tensor, reduced to tp: the layout demanded. False when none does.
bool pinnedLayout(const Constraints &constraints, const Tensor &tensor, Layout &layout);

} // namespace cleave::planner
