// The cost of a microbatch on a device, solved once for all settings that agree on it: the splits worth considering and
// a lower bound.
//
//   Cell &cell = cells.at(setting);   // by tp, cp, ep, where these lie, and samples on a device
//   cell.secondsBound                 // no split of the model passes a microbatch faster
#pragma once
#include "compiler/planner/cost/activity_costs.h"
#include "compiler/planner/search/space/assignment.h"
#include <map>
#include <memory>
#include <tuple>

namespace cleave::planner {

// One way to split every operation; from the fastest to the one that needs the least memory.
struct CellVariant {
  std::vector<int> choice;
  bool ofBatchWays = false; // dependsOnBatchWays
  // By the group of the batch axes where it is of these, by microbatches where these differ, by whether there are
  // stages and gradients are added up (Setting::addsUpGradients), by the parts into which ZeRO cuts their sums, and by
  // those into which it cuts gradients where operations exchange these.
  using Key = std::tuple<GroupShape, int64_t, bool, bool, int64_t, int64_t>;
  std::map<Key, ActivityCosts> activities;
};

struct Cell {
  std::shared_ptr<const SplitModel> model; // of the first setting that asked
  std::vector<CellVariant> variants;
  double fastestValue = 0;    // seconds of the first variant, as the inner problem counts them
  double secondsBound = 0;    // of one microbatch through the whole model: compute, and once solved, communication
  bool cutsExchanges = false; // ZeRO cuts what some operation exchanges (Exchange::isCut)
  bool isSolved = false, hasLeaner = false, hasForced = false, isExact = true;
  Status reason; // why it cannot be built, or has no variant
};

class Cells {
public:
  Cells(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster, const Constraints &constraints)
      : problem(problem), facts(facts), cluster(cluster), constraints(constraints) {}

  // Built, with the bound of compute alone.
  Cell &at(const Setting &setting);
  // Finds the fastest variant and tightens the bound.
  void solve(Cell &cell);
  // Adds the variants that need less memory: for settings whose memory the fastest one does not fit.
  void addLeaner(Cell &cell);
  // Adds the fastest variant with each way to split each operation. The fastest of all has the least sum over the
  // operations; of stages the slowest counts.
  void addForced(Cell &cell);
  // The cell's model with the setting's own axes and microbatches; the variants' choices are of it too.
  SplitModel modelFor(const Cell &cell, const Setting &setting) const;
  // The costs of a variant with that model; priced once for all settings that agree on it. Stays where it is.
  const ActivityCosts &activityOf(Cell &cell, size_t variant, const SplitModel &model) const;

private:
  const Problem &problem;
  const ProblemFacts &facts;
  const Cluster &cluster;
  const Constraints &constraints;
  using Key = std::tuple<int64_t, int64_t, int64_t, double, bool, bool, Placement>;
  std::map<Key, Cell> cells;
  std::map<Key, std::shared_ptr<const SplitModel>> models;     // null: cannot be built
  std::map<int64_t, std::shared_ptr<const SplitModel>> likeOf; // by cp
  EliminationPlans plans;
};

} // namespace cleave::planner
