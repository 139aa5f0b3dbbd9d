// The space of a search: the settings that the constraints leave open and where their stages may begin; and the
// consequences for one setting.
//
//   SearchSpace space{problem, facts, cluster, constraints, options};
//   CLEAVE_RETURN_IF_ERROR(space.gather());
//   space.settings                              // mesh shapes and orders, microbatches, schedules
#pragma once
#include "compiler/planner/pipeline/stage_plan.h"
#include "compiler/planner/search/space/search_options.h"
#include "compiler/planner/split/split_model.h"

namespace cleave::planner {

// --recompute one by one: an entry for every stage, or for every unit; both empty where it is not given so.
struct GivenRecomputation {
  std::vector<Recompute> ofStage, ofUnit;
};

struct SearchSpace {
  SearchSpace(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster, const Constraints &constraints,
              const SearchOptions &options);

  // Finds settings and pinned stages, with notes on them. Errors: there are none, or a place to cut that does not
  // exist.
  Status gather();
  // With few variables in all settings together, every one that may be the best is solved exactly.
  bool isSmall() const;
  // That can be split in more than one way, parameters included.
  static ptrdiff_t openOperations(const SplitModel &model);
  // Pipelines of a few operations: the bound holds for all splits, not only for those that were cut into stages.
  bool coversAllSplits(const SplitModel &model) const;

  const ScheduleShape *shapeOf(const Setting &setting) const;     // null: no pipeline, or no such schedule
  const ScheduleProfile *profileOf(const Setting &setting) const; // null: no pipeline, or no such table
  // Has the schedule a table, with the stages that are asked for?
  bool isOpen(const Setting &setting) const;
  // Why the setting's schedule has no table; ok: it has one, or may have one with the more microbatches that are open.
  Status refusalOf(const Setting &setting) const;
  // A step at least; `seconds`: one microbatch through the whole model.
  double stepBound(const Setting &setting, double seconds) const;
  std::vector<Recompute> openWays() const;
  // Error: it has another number of entries than the setting has stages, and the model blocks.
  Result<GivenRecomputation> givenRecomputation(const Setting &setting) const;
  // How the model's setting is cut into stages; the arguments must outlive it.
  StageProblem stagesOf(const SplitModel &model, const ActivityCosts &activity, const StateCosts &state) const;
  // Every setting was refused: the schedule cannot have its microbatches, or it has more stages than the model units.
  Status whyNothing() const;

  const Problem &problem;
  const ProblemFacts &facts;
  const Cluster &cluster;
  const Constraints &constraints;
  const SearchOptions &options;
  double memoryLimit; // bytes of a device that a plan may fill
  std::vector<Setting> settings;
  std::vector<int> pinnedUnits; // the first of each stage; empty: open
  std::vector<std::string> notes;

private:
  size_t meshes = 0; // among the settings
};

// A split of all operations with what its units cost: what it takes to cut it into stages. The model must outlive it.
struct PricedSplit {
  PricedSplit(const SearchSpace &space, const SplitModel &model, const std::vector<int> &choice)
      : activity(costActivity(model, choice)), state(costState(model, choice)),
        stages(space.stagesOf(model, activity, state)) {}
  PricedSplit(const PricedSplit &) = delete;
  PricedSplit &operator=(const PricedSplit &) = delete;

  ActivityCosts activity;
  StateCosts state;
  StageProblem stages;
};

} // namespace cleave::planner
