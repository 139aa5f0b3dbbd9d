// The outer level of the search: every mesh shape, microbatch count, ZeRO stage and recomputation that the constraints
// leave open, each solved inside (assignment.h).
#pragma once
#include "compiler/planner/assignment.h"
#include "compiler/planner/search.h"
#include "compiler/planner/stage_units.h"
#include <memory>

namespace cleave::planner {

struct Solution {
  std::shared_ptr<const SplitModel> model; // with the setting
  Assignment assignment;
  std::vector<int> stageStarts = {0}; // first node of every pipeline stage
  double seconds() const { return assignment.evaluation.predicted.stepSeconds; }
  double bytes() const { return assignment.evaluation.predicted.memory.total(); }
};

struct Outcome {
  std::optional<Solution> best;        // the fastest that fits
  std::optional<Solution> leastMemory; // where nothing fits: what comes closest
  std::vector<Solution> byMesh;        // the best of every mesh shape, the fastest first
  double bound = 0;                    // no split that fits is faster
  int64_t candidates = 0;
  std::vector<std::string> notes;
  Status reason; // why nothing could be tried at all
};

// Never fails for lack of memory: see `leastMemory`. An error: constraints that contradict the problem.
Outcome searchSettings(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                       const Constraints &constraints, const SearchOptions &options);

// Bytes of a device that a plan may fill.
double usableMemory(const Cluster &cluster);
// The decision that a solution stands for, without alternatives and search figures.
Decision toDecision(const Problem &problem, const Solution &solution);

} // namespace cleave::planner
