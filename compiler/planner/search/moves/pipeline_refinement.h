// What is done with the best pipelines that a search has found: other cuts into stages, schedules whose tables follow
// the stages' times, and sharper bounds of what might be faster.
#pragma once
#include "compiler/planner/search/space/setting_trials.h"
#include <functional>

namespace cleave::planner {

// A bound of so large a part of the best plan's time is sharp enough.
inline constexpr double certifiedPart = 0.995;
// And so many linear programs each.
inline constexpr int mostPrograms = 60;

class PipelineRefinement : Refinement {
public:
  using Refinement::Refinement;

  // The best pipelines once more: with shardings solved for their own setting, and with stages as unequal as they like,
  // at the cuts where bounds of all cuts have their least values.
  void refine();
  // Sharper bounds of the settings tried that might be faster than the best plan, until none might by more than half a
  // per cent: first that units are whole; then paths through their schedules, which cost more.
  void certify();
  // The best pipelines with single units moved from stage to stage (cut_improvement.h).
  void moveUnits();
  // The best pipelines, with as many microbatches as they like, with the schedules whose tables follow the stages'
  // times: there is none before there are stages, so that they have no bound.
  void tryFollowingSchedules();

private:
  std::vector<Solution> bestPipelines() const;
  void refineCuts(const Solution &given);
  void withStages(const OpenPlan &plan, const std::function<void(const StageProblem &, const std::vector<int> &)> &use);
};

} // namespace cleave::planner
