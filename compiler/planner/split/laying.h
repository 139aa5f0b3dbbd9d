// How laid axes (laid_axes.h) are given to the factors of nodes: what 2D, 2.5D, 3D and expert parallelism have in
// common, and the walk of each over the graph.
#pragma once
#include "compiler/planner/split/split_model.h"

namespace cleave::planner {

class Laying {
public:
  Laying(const Problem &problem, const ProblemFacts &facts, const Setting &setting, std::vector<LaidAxis> &axes)
      : problem(problem), facts(facts), setting(setting), mesh(setting.mesh()), axes(axes) {
    for (LaidAxis &axis : axes) axis.factors.assign(problem.nodes.size(), -1);
  }

  // Gives an axis to a factor of a node. False, and nothing done, where the axis has one already or the factor cannot
  // take it beside those that it has.
  bool give(size_t axis, size_t node, int64_t factor);
  bool giveSamples(size_t axis, size_t node) { return give(axis, node, facts.batchFactors[node]); }
  bool can(size_t axis, size_t node, int64_t factor) const;
  // Cheap nodes take an axis that they do not have as their first reader wants it, the last nodes first: broadcasts of
  // parameters, masks.
  void followReaders();
  // The same after what they read: what only a scalar is made of.
  void followOperands();

  const Problem &problem;
  const ProblemFacts &facts;
  const Setting &setting;
  const dist::Mesh mesh;
  std::vector<LaidAxis> &axes;
};

void layGrid(Laying &laying);
// Error: no node works on stacked weights.
Status layExperts(Laying &laying);

} // namespace cleave::planner
