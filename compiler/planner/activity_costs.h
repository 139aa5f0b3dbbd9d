// What one unit of the model (stage_units.h) costs: seconds of one microbatch and bytes of one device, for each way of
// recomputation, and what passes between units. Stages are sums of these.
//
// The host hands kernels over one after the other, ahead of the device where the device is the slower of the two: a
// unit's pass takes the longer of all its kernels' dispatch and of all that the device does, collectives included. The
// backward pass is two of them (gradients of inputs, of weights), and work done again one more.
//
//   ActivityCosts costs = costActivity(model, choice);
//   costs.of(kind, Recompute::Full).backwardInput    // with the forward pass done again
#pragma once
#include "compiler/planner/step_evaluation.h"
#include <array>

namespace cleave::planner {

struct UnitActivity {
  double forward = 0, backwardInput = 0, backwardWeight = 0; // seconds, with the collectives that nothing hides
  double communication = 0;                                  // those collectives
  double again = 0;                                          // of backwardInput: forward work done again
  double waiting = 0;                                        // of all three: the device waits for the host
  double kept = 0;                                           // bytes for each microbatch in flight
  double held = 0;       // likewise, where the backward pass is two functions: gradients that the second one needs
  double keptOnHost = 0; // likewise, in the host's memory
  double passing = 0;    // bytes once: of what stages offload, what is on its way
  double transient = 0;  // bytes once, while the unit is computed again
  double keptOfLast = 0; // bytes once: what the last microbatch keeps beyond, where it alone is not recomputed
  double workspace = 0;  // bytes of its largest operation
  double beside = 0;     // transient and workspace together, of the unit that needs most of both

  double seconds() const { return forward + backwardInput + backwardWeight; }
  UnitActivity &operator+=(const UnitActivity &other);
  // Of so many units one after the other: what a unit needs beside, it needs once.
  UnitActivity times(double count) const;
};

struct ActivityCosts {
  std::vector<std::array<UnitActivity, 3>> kinds;        // by unit kind and Recompute
  std::vector<double> forwardCrossing, backwardCrossing; // bytes of one device, by unit: from the one before it
  double inputs = 0;                                     // bytes of inputs and constants, one microbatch
  const UnitActivity &of(int kind, Recompute how) const { return kinds[size_t(kind)][size_t(how)]; }
};
ActivityCosts costActivity(const SplitModel &model, const std::vector<int> &choice);

// A step without pipeline takes at least so long, whatever is chosen: every unit the least compute of its operations,
// or their dispatch.
double leastPassSeconds(const SplitModel &model, Recompute how);
double leastUpdateSeconds(const SplitModel &model); // of the parameters, with what nothing hides

// What a unit costs once a step: its parameters.
struct UnitState {
  double parameters = 0, gradients = 0, optimizer = 0; // bytes
  double update = 0, exposed = 0, hideable = 0;        // seconds
  double hideableLower = 0;                            // of hideable: of parameters with Setting::lowerZero
  double host = 0, hostSeconds = 0, hostExposed = 0;   // in the host's memory; copies, and their part of `exposed`
  double largestParameter = 0;                         // bytes of its largest, not split by ZeRO
  double elements = 0;                                 // of all devices together
  double bytes() const { return parameters + gradients + optimizer; }
  UnitState &operator+=(const UnitState &other);
  UnitState times(double count) const; // of so many units
};

struct StateCosts {
  std::vector<UnitState> kinds;
  std::vector<UnitState> shared; // beside UnitLayout::shared: in every stage that reads the parameter, but once
};
StateCosts costState(const SplitModel &model, const std::vector<int> &choice);

} // namespace cleave::planner
