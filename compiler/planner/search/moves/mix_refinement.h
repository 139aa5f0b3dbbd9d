// ZeRO stages mixed by group of parameters (mixed_zero.h): where that may be faster than the best plan found, first
// where the bound is lowest; and a bound of all such plans.
#pragma once
#include "compiler/planner/search/space/setting_trials.h"
#include <functional>

namespace cleave::planner {

class MixRefinement : Refinement {
public:
  using Refinement::Refinement;

  // Records what it finds, in a few settings.
  void mix();
  // Seconds that no plan which mixes stages is below, of the settings tried, with or without pipeline; shardings of
  // operations as looked at. No sharper than `wanted`.
  double bound(double wanted);
  double known() const; // the same without making it sharper

private:
  void sharpen(double goal); // bounds of whole units
  void mixFrom(Solution solution);
  // Of the setting, with these shardings: the fastest that fits with one stage for all.
  std::optional<Solution> uniform(const OpenPlan &plan) const;
  // What is certified with its stages mixed, some of them decided.
  void withMixes(const OpenPlan &plan, const ZeroMixes::Decided &decided,
                 const std::function<void(const StageProblem &)> &use);
  // A bound of the plan with these stages decided: where it is below the goal, the lesser of those with the next
  // parameter's stage decided either way.
  double branch(const OpenPlan &plan, const ZeroMixes::Decided &decided, double goal);
};

} // namespace cleave::planner
