// The cost of one unit of the model (stage_units.h): seconds of one microbatch and bytes of one device, for each way of
// recomputation, and the bytes that pass between units. Stages are sums of these.
//
// The host hands kernels over one after the other, ahead of the device where the device is the slower of the two: a
// unit's pass takes the longer of all its kernels' dispatch and of all that the device does, collectives included. The
// backward pass is two of them (gradients of inputs, of weights), and work done again one more.
//
//   ActivityCosts costs = costActivity(model, choice);
//   costs.of(kind, Recompute::Full).backwardInput    // with the forward pass done again
#pragma once
#include "compiler/planner/cost/step_evaluation.h"
#include <array>

namespace cleave::planner {

struct ActivityCosts {
  std::vector<std::array<Cost, everyRecompute.size()>> kinds; // by unit kind and Recompute
  std::vector<double> forwardCrossing, backwardCrossing;      // bytes of one device, by unit: from the one before it
  std::vector<double> passing;                                // likewise, beside UnitLayout::passing
  double inputs = 0;                                          // bytes of inputs and constants, one microbatch
  const Cost &of(int kind, Recompute how) const { return kinds[size_t(kind)][size_t(how)]; }
};
ActivityCosts costActivity(const SplitModel &model, const std::vector<int> &choice);
// Does a microbatch cost something else with other batch axes, or other microbatches, but as many samples on a device?
// Operations may exchange over these axes, and what is exchanged once a step is shared by all microbatches.
bool dependsOnBatchWays(const SplitModel &model, const std::vector<int> &choice);

// A lower bound of a step's passes without pipeline stages: compute and host dispatch of each unit, without collectives
// between operations.
double leastPassSeconds(const SplitModel &model, Recompute how);
// The least seconds of the parameters' updates and stepPrice(), with what nothing hides.
double leastUpdateSeconds(const SplitModel &model);

// The cost in a step: what homePrice() has, and the largest parameter, gradient, update and state.
Cost parameterCost(const SplitModel &model, const Variable &variable, size_t home, CollectiveSink *sink = nullptr);

struct StateCosts {
  std::vector<Cost> kinds;
  std::vector<Cost> shared; // beside UnitLayout::shared: in every stage that reads the parameter, but once
  // Seconds of what every rank of a pipeline sums up once a step: of the rank that has the last unit in that one's.
  double ofOtherRanks = 0;
};
StateCosts costState(const SplitModel &model, const std::vector<int> &choice);
// With so many seconds in place of stepPrice(), of one rank: for bounds.
StateCosts costState(const SplitModel &model, const std::vector<int> &choice, double ofStep);

} // namespace cleave::planner
