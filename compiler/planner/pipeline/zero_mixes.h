// What the parameters cost with each ZeRO stage, for bounds of plans that mix two of them (mixed_zero.h): a parameter
// takes the bytes and the seconds of one of these, or lies between them.
//
//   ZeroMixes mixes(model, choice, activity, pair);
//   mixes.least()                              // each one's least bytes, and its least seconds
//   mixes.of(kind, at)    // what the least bytes cost more
#pragma once
#include "compiler/planner/cost/least_contention.h"
#include <array>

namespace cleave::planner {

class ZeroMixes {
public:
  // Of a plan's parameters each has one of two stages.
  static constexpr std::array<LeastContention::Pair, 6> pairs = {{{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}}};

  // Seconds that nothing hides count, and a part of those of collectives less what compute hides of them, of the lower
  // stage and of both; and a part of the waiting for links. No plan is faster than any sum of such parts up to
  // 1: the latest of the three is what is waited for.
  struct Weights {
    double lower, all, links;
    // Of a second that compute may hide, with what it hides of the lower stage's collectives and of all.
    double hides(double ofLower, double ofAll) const { return lower * ofLower + all * ofAll; }
  };
  static constexpr std::array<Weights, 17> weights = {{{0, 0, 0},
                                                       {1, 0, 0},
                                                       {0, 1, 0},
                                                       {0.125, 0.875, 0},
                                                       {0.25, 0.75, 0},
                                                       {0.375, 0.625, 0},
                                                       {0.5, 0.5, 0},
                                                       {0.625, 0.375, 0},
                                                       {0.75, 0.25, 0},
                                                       {0, 0, 1},
                                                       {0.125, 0, 0.875},
                                                       {0.25, 0, 0.75},
                                                       {0.375, 0, 0.625},
                                                       {0.5, 0, 0.5},
                                                       {0.625, 0, 0.375},
                                                       {0.75, 0, 0.25},
                                                       {0, 0.5, 0.5}}};

  struct Saving {
    double price = 0, bytes = 0; // seconds a step for each byte of a device; so many bytes
  };
  // Of a unit: its parameters, each with the faster of the two stages, and what the other one saves.
  struct Costs {
    double seconds = 0; // a step
    double bytes = 0;   // of a device, beyond least()
    std::vector<Saving> savings;
  };

  struct Spent {
    double seconds = 0, left = 0; // left: bytes that cannot be saved
    double price = 0;             // of the last byte
  };
  // What saving so many bytes takes: the cheapest first, each in part.
  class SortedSavings {
  public:
    explicit SortedSavings(std::vector<Saving> savings);
    Spent spend(double bytes) const;

  private:
    std::vector<Saving> savings;
    std::vector<Saving> before; // of all before each: seconds in place of the price
  };

  // With one of `pairs`. `activity`: of all plans at least. `decided`: parameters' variables whose stage is known, and
  // which of the pair it is.
  using Decided = std::vector<std::pair<size_t, size_t>>;
  ZeroMixes(const SplitModel &model, const std::vector<int> &choice, const ActivityCosts &activity, size_t pair,
            const Decided &decided = {});

  // The model with the higher stage, but for parameters that have the lower one: no plan needs less of what follows
  // from all parameters' stages.
  static SplitModel leanest(const SplitModel &model, size_t pair, const Decided &decided);

  const StateCosts &least() const { return state; }
  // `at`: of `weights`.
  const Costs &of(int kind, size_t at) const { return kinds[at][size_t(kind)]; }
  const Costs &ofShared(size_t parameter, size_t at) const { return shared[at][parameter]; }
  // What compute hides, of the lower stage's collectives and of all.
  Overlap lower, all;
  const LeastContention &contention() const { return links; }
  // LeastContention::crowd() of a unit's parameters.
  const LeastContention::Crowd &crowdOf(int kind) const { return crowds[size_t(kind)]; }
  const LeastContention::Crowd &crowdOfShared(size_t parameter) const { return sharedCrowds[parameter]; }
  // Variables of parameters whose stage makes a difference to memory, the largest difference first.
  const std::vector<size_t> &largestFirst() const { return largest; }

private:
  void limitTo(const StateCosts &leanest);

  StateCosts state;
  LeastContention links;
  std::vector<LeastContention::Crowd> crowds, sharedCrowds; // beside StateCosts
  std::vector<size_t> largest;
  using ByWeights = std::array<std::vector<Costs>, weights.size()>;
  ByWeights kinds, shared; // beside StateCosts
};

} // namespace cleave::planner
