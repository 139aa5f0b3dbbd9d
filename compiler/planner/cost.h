// Cost: what a choice takes of one device, as one value. A part of a model has terms that are added up and peaks of
// which the largest counts; both are added and scaled in one place. Who makes a cost says what it is of: a variable's
// candidate or a flow of a whole step, a unit of one microbatch, a rank.
//
//   Cost rank;
//   for (const Unit &unit : units) rank.add(costs.of(unit.kind, how));
//   rank.seconds(), rank.parameters, rank.workspace     // sums, and the largest workspace
//
// A new term is a line here, and the place that fills it in.
#pragma once
#include "compiler/cluster/cost.h"
#include <algorithm>
#include <array>
#include <bit>

namespace cleave::planner {

// Terms that add up: only doubles, and pairs of them.
struct CostSums {
  // Seconds of the passes, with the collectives that nothing hides.
  double forward = 0, backwardInput = 0, backwardWeight = 0;
  double again = 0;                // of backwardInput: forward work done again
  double waiting = 0;              // of all three: the device waits for the host
  double communication = 0;        // of all three: those collectives; infinite where an operand cannot be had so
  double communicationForward = 0; // and of the forward pass
  LinkSeconds links = {}, linksForward = {}; // of links that these keep busy
  // Seconds once a step.
  double update = 0;
  double exposed = 0;       // communication that nothing hides
  double hideable = 0;      // gradients' reductions and gathers of parameters, which run beside the passes
  double hideableLower = 0; // of these: of parameters with Setting::lowerZero
  LinkSeconds hideableLinks = {};
  double hostSeconds = 0, hostExposed = 0; // copies of the state from and to the host; their part of `exposed`
  // Bytes of each microbatch in flight.
  double kept = 0;        // from the forward pass to the backward pass, with the room that gradients need beyond it
  double activations = 0; // of these: what the forward pass keeps
  double held = 0;        // where the backward pass is two functions: what the first makes for the second
  double keptOnHost = 0;  // in the host's memory
  // Bytes, once.
  double parameters = 0, gradients = 0, optimizer = 0;
  double inRoom = 0;     // gradients that take the room of activations (gradientsInRoom); `kept` has them
  double host = 0;       // state in the host's memory
  double staged = 0;     // inputs of the step that runs and of the next one, where they come to a GPU
  double keptOfLast = 0; // what the last microbatch keeps, where it alone is not recomputed
  double sums = 0;       // what sums of gradients take more than parameters lie (sumBytes)
  double combined = 0;   // of gradients: what is combined over tp beside them (combinedBytes)
  double gathered = 0;   // parameters that tp gathers, whole, for each time (gatheredParameterBytes)
  double means = 0;      // gradients as the update reads them, beside their sums
  double elements = 0;   // of parameters, on all devices together
};

// Terms of which the largest counts: bytes.
struct CostPeaks {
  double workspace = 0;        // of an operation
  double transient = 0;        // while a unit is computed again
  double beside = 0;           // transient and workspace together, of the unit that needs most of both
  double largestLeaving = 0;   // of keptOnHost: most that comes back at once
  double largestGathered = 0;  // of gathered: one parameter
  double largestParameter = 0; // a parameter, not split by ZeRO
  double largestGradient = 0;  // likewise
  double largestUpdate = 0;    // what the update of a parameter makes on its way
  double largestState = 0;     // optimizer state of a parameter, in the host's memory
  double gatheredAgain = 0;    // parameters that ZeRO-3 has gathered while a segment is computed again
  double unitsAgain = 0;       // no bytes: 1 where whole units are computed again
};

struct Cost : CostSums, CostPeaks {
  double seconds() const { return forward + backwardInput + backwardWeight; } // of the passes
  double compute() const { return seconds() - communication; }
  double computeForward() const { return forward - communicationForward; }
  // The bytes on a device that stay from step to step.
  double stateBytes() const { return parameters + gradients + optimizer; }

  // So many times `other`, one after the other: what it needs beside, it needs once.
  Cost &add(const Cost &other, double times = 1) {
    join<CostSums>(other, [times](double sum, double term) { return sum + times * term; });
    join<CostPeaks>(other, [](double most, double term) { return std::max(most, term); });
    return *this;
  }
  Cost times(double count) const {
    Cost result;
    return result.add(*this, count);
  }

private:
  template <class Terms, class Join> void join(const Cost &other, Join with) {
    using Numbers = std::array<double, sizeof(Terms) / sizeof(double)>;
    auto own = std::bit_cast<Numbers>(static_cast<const Terms &>(*this));
    const auto others = std::bit_cast<Numbers>(static_cast<const Terms &>(other));
    for (size_t i = 0; i < own.size(); ++i) own[i] = with(own[i], others[i]);
    static_cast<Terms &>(*this) = std::bit_cast<Terms>(own);
  }
};

} // namespace cleave::planner
