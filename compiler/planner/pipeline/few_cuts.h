// Pipelines of few units: every cut into stages by itself. A cut whose memory keeps everything takes what its schedule
// takes with nothing computed again; no recomputation of it is faster, so where it does not fit that is a bound.
//
//   6 blocks, interleaved:2 on 2 ranks, 10 cuts:   [1][2][2][1]  5.1 s    [2][1][2][1]  5.4 s    ...
//
// A cut that makes a rank work longer than `worth` in all is left out without being simulated.
#pragma once
#include "compiler/planner/pipeline/stage_plan.h"
#include "compiler/planner/search_clock.h"
#include <optional>

namespace cleave::planner {

struct TimedCut {
  std::vector<int> firstUnits;
  double seconds = 0; // of a step at least, whatever is computed again
  bool fits = false;  // as it is, with nothing computed again
};

// The cuts that may take less than `worth` seconds within the memory, the fastest first; nothing where there are more
// than can be looked at. 0 seconds are known for tables that follow the stages' times, for steps that overlap, and
// where a pass gets shorter by computing something again. When the clock is over: those that were looked at.
std::optional<std::vector<TimedCut>> timeEachCut(const StageProblem &problem, double worth,
                                                 const SearchClock &clock = {});

} // namespace cleave::planner
