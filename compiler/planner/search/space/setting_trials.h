// Tries a setting: each ZeRO stage with each of its cell's shardings, cut into stages; what may be the best of its mesh
// is simulated and recorded. Without pipeline, where the space is small, shardings are solved exactly too.
#pragma once
#include "compiler/planner/infinity.h"
#include "compiler/planner/pipeline/few_cuts.h"
#include "compiler/planner/search/space/cells.h"
#include "compiler/planner/search/space/found_plans.h"
#include "compiler/planner/search/space/search_space.h"
#include "compiler/schedule/critical_path.h"
#include <map>
#include <set>
#include <string>
#include <tuple>

namespace cleave::planner {

// The search tells plans by their formula apart from plans by their simulation: those within these parts of the best
// are simulated, and are worth improving or showing beside it.
inline constexpr double worthSimulating = 1.03, worthRefining = 1.05, worthImproving = 1.25;
// Without pipeline a mix of ZeRO stages may be so much faster than the best of one stage for all (mix_zero.cpp).
inline constexpr double worthMixing = 2;
// A bound of so large a part of the best plan's time is sharp enough, and so many linear programs each.
inline constexpr double certifiedPart = 0.995;
inline constexpr int mostPrograms = 60;

// Shardings of a setting that may be faster than the best plan, cut and recomputed otherwise than was tried.
struct OpenPlan {
  double bound = 0;
  Setting setting;
  Cell *cell = nullptr;
  size_t variant = 0;
};

class SettingTrials {
public:
  SettingTrials(const SearchSpace &space, Cells &cells, FoundPlans &found, const SearchClock &clock)
      : space(space), cells(cells), found(found), clock(clock) {}

  // `known`: a bound of the setting. When the clock is over and a plan that fits is known, what is left of it counts
  // with that. Error: what was asked for contradicts it.
  Status trySetting(const Setting &setting, Cell &cell, double known);
  // Seconds that no plan of the setting with this variant is below, whatever ZeRO stages its parameters have.
  // `wantsLeaner`: shardings that need less memory, or reduce less, may be better.
  double leastOfAnyZero(const Setting &setting, Cell &cell, size_t variant, bool &wantsLeaner) const;
  // Returns a bound of the setting with these shardings. `isTight`: memory makes it slower, leaner ones may be better.
  double tryPlan(const StageProblem &stages, const std::vector<int> &choice, bool isExact, bool &isTight);
  // The first of them in any case, the others until the clock is over.
  void tryCuts(const StageProblem &stages, const std::vector<int> &choice, bool isExact,
               const std::vector<TimedCut> &cuts);
  // The known paths of the setting's table.
  KnownPaths &pathsOf(const Setting &setting) { return paths[{setting.schedule, setting.pp, setting.microbatches}]; }
  // Shardings solved for their own setting, without pipeline.
  void offer(const SplitModel &model, const Assignment &assignment);

  std::vector<OpenPlan> open;     // the bound does not count them yet
  std::vector<OpenPlan> mixes;    // whose ZeRO stages may be mixed
  double bound = infinity;        // of the settings tried but for these
  int64_t candidates = 0;         // priced
  std::set<std::string> refusals; // why schedules have no table for settings that were to be tried

private:
  void consider(const StageProblem &stages, const std::vector<int> &choice, bool isExact, const StagePlan &plan);
  bool isSettledBy(const Setting &setting, const SplitModel &model) const;
  bool solvesSplits(const Setting &setting, const SplitModel &model) const;
  double leastOfVariant(const Setting &setting, Cell &cell, size_t variant, const std::vector<int> &zeros);
  double worthKeeping(const Setting &setting) const;
  double worthPlanning(const Setting &setting) const;
  double worthCutting(const Setting &setting) const;
  double solveExactly(SplitModel &model, const std::vector<Recompute> &ways);
  void openBlocks(const SplitModel &model, const Assignment &assignment);

  const SearchSpace &space;
  Cells &cells;
  FoundPlans &found;
  const SearchClock &clock;
  std::map<std::tuple<std::string, int64_t, int64_t>, KnownPaths> paths; // by schedule, ranks and microbatches
};

// The state that moves work on (search/moves/move.h).
struct Search {
  const SearchSpace &space;
  Cells &cells;
  FoundPlans &found;
  SettingTrials &trials;
  const SearchClock &clock;
  double bound = 0; // seconds: no plan is faster
};

} // namespace cleave::planner
