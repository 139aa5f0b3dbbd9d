// The form that readers of a Graph rely on: every value has a type, every node and function names values that there
// are, and a function's nodes read its inputs and the results of nodes before them.
#pragma once
#include "graph.pb.h"
#include "runtime/base/status.h"

namespace cleave::runtime {

// Errors (Input) name the node or the function. Operators and attributes are not looked at.
Status checkGraph(const plan::Graph &graph);

} // namespace cleave::runtime
