// Results of the file's nodes among those of the step, which may compute the node in several operations.
#pragma once
#include "compiler/planner/problem/constraints.h"
#include "compiler/planner/problem/problem.h"
#include <map>
#include <string>
#include <unordered_map>

namespace cleave::annotations {

// How a node's result lies, wherever the step computes it in the file's form.
struct ResultLayout {
  std::string node;
  std::map<int64_t, dist::Axes> dims; // by dimension; below 0: from the back
};

// The last operation of each node, as an index into Problem::nodes: "NODE", "NODE:Add", ... come from NODE.
std::unordered_map<std::string, size_t> lastOperations(const planner::Problem &problem);

// Pins for the results that the step computes in the file's form. A note on the others, which the search lays out; ""
// if there are none.
std::string pinResults(const std::vector<ResultLayout> &results, const planner::Problem &problem,
                       planner::Constraints &constraints);

} // namespace cleave::annotations
