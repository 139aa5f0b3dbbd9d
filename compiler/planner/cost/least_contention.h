// What the passes wait at least because collectives beside them use the same links (hide() in step_evaluation.h), for
// bounds: linear in what these decide, the units of a rank, how they are computed again, and each parameter's ZeRO
// stage of two. docs/cost-model.md, *Bounds*, says why nothing waits less.
//
//   a step >= passes + rate(i, p) * p.hideable of each parameter p with its stage - less(unit, crowd) of each unit
#pragma once
#include "compiler/planner/cost/activity_costs.h"
#include <algorithm>
#include <array>

namespace cleave::planner {

class LeastContention {
public:
  using Pair = std::array<int, 2>; // ZeRO stages, the lower one first

  LeastContention() = default; // none
  // What the collectives of parameters take, each with the stage of the pair with which they take longest.
  struct Crowd {
    double inLine = 0; // seconds that those of the lower stage may stand in line with
    double all = 0;
    Crowd &add(const Crowd &other, double times) {
      inLine += times * other.inLine;
      all += times * other.all;
      return *this;
    }
  };
  // `beside`: of all parameters, with each stage of the pair that they may have; `longest`: the longest seconds of each
  // parameter.
  LeastContention(const SplitModel &model, const ActivityCosts &activity, const Pair &stages,
                  const std::array<Price, 2> &beside, double longest);

  // Seconds of a step for each that collectives over a parameter with this stage of the pair, of this price, take. At
  // most 1.
  double rate(size_t stage, const Price &price) const;
  // Of a parameter's collectives, seconds with each stage.
  Crowd crowd(double lower, double higher) const { return {std::max(lower, turns * higher), std::max(lower, higher)}; }
  // Seconds of a step to take off for a unit with the crowd of its parameters, or for what a rank sends.
  double less(const SplitModel &model, const PassSeconds &passes, const Crowd &crowd) const;

private:
  // Seconds on links, each as the part of it that all parameters' collectives use; no more than the busier link's.
  double onLinks(const LinkSeconds &links) const { return parts.node * links.node + parts.network * links.network; }
  double roomFor(const Window &higher, const Crowd &crowd) const;
  // What the lower stage's collectives have less room in than the higher one's, where passes are not as most are.
  double lessRoom(const Window &lower, const Window &higher) const;

  bool isKnown = false;
  bool isRoomy = false; // all collectives together fit beside the passes of most units
  Pair stages = {};
  LinkSeconds parts;
  std::array<double, 2> rates = {};
  double turns = 0;    // of the lower stage for each of the higher one
  double crowding = 1; // most that collectives take of the higher stage's turns while links make passes wait
};

} // namespace cleave::planner
