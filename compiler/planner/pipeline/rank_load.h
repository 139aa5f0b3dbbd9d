// The units of one rank, by kind, and what they add up to: how much of them is computed again so that they fit.
//
//   RankLoad load(problem);
//   load.add(0, 6, 0);                  // units 0 to 5, in stage 0
//   double seconds = 0;
//   if (load.fit(seconds)) ...          // seconds of a microbatch with the least that memory makes be computed again
#pragma once
#include "compiler/planner/infinity.h"
#include "compiler/planner/pipeline/stage_plan.h"
#include <array>
#include <utility>
#include <vector>

namespace cleave::planner {

class RankLoad {
public:
  explicit RankLoad(const StageProblem &problem) : problem(&problem) {}

  // Units [first, end) of a stage; equal ones at once.
  void add(int first, int end, int stage);

  // Chooses how much is recomputed; false when even all of it does not fit. `seconds` of one microbatch.
  bool fit(double &seconds);
  Cost total() const; // activity of a microbatch, and state
  double memory() const;

  // Hands the modes out to the units in the order given, recomputed ones first.
  void assign(const std::vector<std::pair<int, int>> &unitsAndStages, std::vector<Recompute> &recompute) const;

  Cost state;
  double buffers = 0; // of its stages' transfers

private:
  using Modes = std::array<int, everyRecompute.size()>; // units, by Recompute
  struct Count {
    int kind = 0, units = 0;
    double live = 1; // microbatches that their stages have slots for
    Modes modes{};
  };

  void setAll(Recompute how);

  // As many units in `more` as it takes, the others in `less`.
  void tryFrom(Recompute less, Recompute more);

  const StageProblem *problem;
  std::vector<Count> kinds;
  std::vector<Modes> bestModes;
  double best = infinity;
  std::vector<size_t> sharedSeen; // parameters that another unit of the rank reads too
};

} // namespace cleave::planner
