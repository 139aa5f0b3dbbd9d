// The repeated blocks of a model in a person's words, from the planner's problem.
//
//   nodes  h.0's, h.1's, ... h.11's of the same form        Problem::findRepeats: {first, period, count = 12}
//   -> {count = 12, first = "h.0", last = "h.11", the exported nodes of h.0, its 12 parameters}
//
// A block is called by the longest path that most names of its parameters begin with (of its nodes, where it has none);
// exporters give some tensors names without a path ("val_43"), which do not count.
#pragma once
#include "compiler/import/inspect.h"
#include "compiler/planner/problem/problem.h"

namespace cleave {

std::vector<import_::RepeatedBlock> repeatedBlocks(const planner::Problem &problem);

} // namespace cleave
