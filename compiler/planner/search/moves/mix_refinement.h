// ZeRO stages mixed by group of parameters (mixed_zero.h): of the best plans, and of the settings whose bounds leave
// room for a faster one.
#pragma once
#include "compiler/planner/search/space/setting_trials.h"

namespace cleave::planner {

class MixRefinement : Refinement {
public:
  using Refinement::Refinement;

  // Records what it finds, in a few settings.
  void mix();

private:
  void mixFrom(Solution solution);
  // Of the setting, with these shardings: the fastest that fits with one stage for all.
  std::optional<Solution> uniform(const OpenPlan &plan) const;
};

} // namespace cleave::planner
