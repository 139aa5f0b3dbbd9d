// The parts of pipeline stages: the nodes in execution order, cut into units. A repetition of a block is a unit;
// between blocks a unit has one operation with a weight, or embeddings that follow each other, and what surrounds it. A
// stage is a run of units.
//
//   gpt with 4 layers:  [embeddings] [layer 0] [layer 1] [layer 2] [layer 3] [final norm, head, loss]
//   --balance 2,2       stages of 2 layers; the embeddings go to the first, the head to the last
//   --split-at "layers.1.mlp*"   cuts [layer 1] in two units
#pragma once
#include "compiler/planner/facts/graph.h"
#include "compiler/planner/problem/constraints.h"

namespace cleave::planner {

struct Unit {
  int first = 0, end = 0; // nodes
  int kind = 0;           // units of one kind are repetitions of one block
  bool isBlock = false;
};

// `cuts`: nodes before which a unit must end, in order.
std::vector<Unit> findUnits(const Graph &graph, const std::vector<Repeat> &repeats, const std::vector<int> &cuts);

// The first node of every stage after the first that --split-at asks for, in order. Errors: a glob that matches no
// node, cuts that leave a stage empty.
Result<std::vector<int>> splitPlaces(const Problem &problem, const Constraints &constraints);
// The first node of every stage that --split-at or --balance ask for; empty when neither was given. Errors: a glob that
// matches no node, cuts that leave a stage empty, a balance of another number of blocks than there are.
Result<std::vector<int>> pinnedStageStarts(const Problem &problem, const std::vector<Unit> &units,
                                           const Constraints &constraints);

// The stage of every node, given the first node of each stage. A node that no gradient flows through (masks, work on
// labels) is in the stage that first reads it.
std::vector<int> stagesOfNodes(const Problem &problem, const std::vector<int> &starts);

} // namespace cleave::planner
