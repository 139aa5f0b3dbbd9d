// Moves: ways to better plans, and to better bounds, than those that a search has found. The driver applies one after
// the other, tells how long it took and what it gained, and leaves out those that --search-moves does not name.
//
//   for (const Move &move : allMoves())
//     if (isAsked(move.name)) move.apply(search);      // records the plans that it finds
//
// A new one is a function in a source of its own and a line of the table in move.cpp.
#pragma once
#include "compiler/planner/search/space/setting_trials.h"
#include <span>

namespace cleave::planner {

struct Move {
  const char *name = "";  // of --search-moves
  const char *doing = ""; // told to who waits
  void (*apply)(Search &search) = nullptr;
};
// In the order in which they are applied.
std::span<const Move> allMoves();
// Errors: a name that is none of a move's.
Status checkMoves(const std::vector<std::string> &names);

// The best pipelines once more: with shardings solved for their own setting, and with stages as unequal as they like,
// at the cuts where the bounds of all cuts have their least values.
void cutAgain(Search &search);
// Without pipeline: the best few with shardings solved with their own prices, where their cell's were used.
void splitAgain(Search &search);
// No plan, but bounds: of plans that may be faster than the best one, until none might be by more than half a per cent.
// First that units are whole, of all of them; then paths through their schedules, which cost more, one after the other.
// Cuts that these find are tried.
void raiseBounds(Search &search);
// The best pipelines with single units moved from stage to stage.
void moveUnits(Search &search);
// The best pipelines, with as many microbatches as they like, with the schedules whose tables follow the stages' times
// (zb-1p, zb-2p): there is none before there are stages, so that they have no bound.
void followSchedules(Search &search);
// Two ZeRO stages by group of parameters, of the best plans and of settings whose bounds leave room for a faster one.
void mixZeroStages(Search &search);
// Pipelines worth a move, the fastest first: the best of a few meshes, and the runners-up asked for.
std::vector<Solution> bestPipelines(const Search &search);

// For tests, and for those above.

// The cut that is left when no unit of a stage makes the simulated step shorter in any other stage, all between them
// moving on by one; what is computed again is chosen anew each time. At most `mostPrices` are simulated, until the
// clock is over. Where `firstUnits`, of each stage, does not fit, what needs fewer bytes is better.
std::vector<int> improvedCut(const StageProblem &stages, std::vector<int> firstUnits, int64_t mostPrices,
                             const SearchClock &clock);
// `model`, `plan` and `evaluation` are replaced where a plan is found that fits and is faster, and faster than `worth`
// seconds; at most `mostPrices` are priced, until the clock is over. `open`: ZeRO stages allowed. Deterministic but for
// the clock.
void mixZero(const StageProblem &stages, const std::vector<int> &open, const std::vector<int> &choice,
             int64_t mostPrices, double worth, std::shared_ptr<SplitModel> &model, StagePlan &plan,
             PlanEvaluation &evaluation, const SearchClock &clock);

} // namespace cleave::planner
