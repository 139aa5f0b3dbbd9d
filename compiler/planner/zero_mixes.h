// What the parameters cost with each ZeRO stage, for bounds of plans that mix them (mixed_zero.h): a parameter takes
// the bytes and the seconds of one of its stages, and may lie between two of them.
//
//   ZeroMixes mixes(model, choice);
//   mixes.least()                              // each one's least bytes, and its least seconds
//   mixes.of(kind, at)    // what the least bytes cost more
#pragma once
#include "compiler/planner/activity_costs.h"
#include <array>

namespace cleave::planner {

class ZeroMixes {
public:
  // Seconds that nothing hides count, and a part of those of collectives less what compute hides of them: of ZeRO 0's
  // and 1's, and of all. No plan is faster than any sum of such parts up to 1: the later of the two is what is waited
  // for.
  struct Weights {
    double lower = 0, all = 0;
  };
  static constexpr std::array<Weights, 9> weights = {
      {{0, 0}, {1, 0}, {0, 1}, {0.125, 0.875}, {0.25, 0.75}, {0.375, 0.625}, {0.5, 0.5}, {0.625, 0.375}, {0.75, 0.25}}};

  struct Saving {
    double price = 0, bytes = 0; // seconds a step for each byte of a device; so many bytes
  };
  // Of a unit: its parameters with their fastest stages, and what higher ones save, each saving dearer than the one
  // before it of the same parameter.
  struct Costs {
    double seconds = 0; // a step
    double bytes = 0;   // of a device, beyond least()
    std::vector<Saving> savings;
  };

  ZeroMixes(const SplitModel &model, const std::vector<int> &choice);

  const StateCosts &least() const { return state; }
  // `at`: of `weights`.
  const Costs &of(int kind, size_t at) const { return kinds[at][size_t(kind)]; }
  const Costs &ofShared(size_t parameter, size_t at) const { return shared[at][parameter]; }
  // What compute hides, of ZeRO 0's and 1's collectives and of all.
  Overlap lower, all;

private:
  StateCosts state;
  using ByWeights = std::array<std::vector<Costs>, weights.size()>;
  ByWeights kinds, shared; // beside StateCosts
};

} // namespace cleave::planner
