// The outer level of the search: mesh shapes, microbatch counts, schedules, ZeRO stages and recomputation that the
// constraints leave open, the most promising first.
//
// The cost of a microbatch does not depend on how many devices repeat it: settings that agree in tp, cp, ep and the
// samples on a device share one cell, whose shardings are solved once (assignment.h). A setting is then a cut of units
// into stages (stage_plan.h). Every setting has a lower bound; it is looked at only while that is below the best plan.
#pragma once
#include "compiler/planner/search/space/cells.h"
#include "compiler/planner/search/space/search_options.h"
#include "compiler/planner/search/space/solution.h"

namespace cleave::planner {

struct Outcome {
  std::optional<Solution> best;        // the fastest that fits
  std::optional<Solution> leastMemory; // where nothing fits: what comes closest
  std::vector<Solution> byMesh;        // the best of every mesh shape looked at, the fastest first
  double bound = 0;                    // no split that fits, with one ZeRO stage for all parameters, is faster
  int64_t candidates = 0;
  std::vector<MoveResult> moves; // in the order in which they were applied
  bool isComplete = true;        // false: stopped by the time limit
  bool wasStopped = false;       // by the time limit, if only where it had no setting left to look at
  std::vector<std::string> notes;
  Status reason; // why nothing could be tried at all
};

// Never fails for lack of memory: see `leastMemory`. An error: constraints that contradict the problem.
Outcome searchSettings(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                       const Constraints &constraints, const SearchOptions &options);
// With what a microbatch costs from a search that differs in nothing but the memory of a device, or for such a one.
Outcome searchSettings(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                       const Constraints &constraints, const SearchOptions &options, Cells &cells);

} // namespace cleave::planner
