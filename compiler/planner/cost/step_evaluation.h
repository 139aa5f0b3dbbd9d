// Adds the prices of an assignment up: seconds a step and bytes a device.
//
//   Evaluation e = evaluate(model, choice);   // choice[v]: index into variable v's candidates or homes
//   e.predicted.stepSeconds, e.predicted.memory.total()
//
// Without pipeline, and with the same recomputation in all blocks: what the shardings are chosen by. stage_plan.h
// prices stages.
#pragma once
#include "compiler/planner/cost/device_memory.h"
#include "compiler/planner/split/pricing.h"

namespace cleave::planner {

// Compute seconds that communication can hide behind: forward and backward parts.
struct Overlap {
  double forward = 0, backward = 0;
};
Overlap overlapOf(const SplitModel &model);
// A step's seconds of collectives over gradients and parameters, which run beside its passes.
struct BesideSeconds {
  double seconds = 0;
  double lower = 0; // of these: of parameters with Setting::lowerZero
  LinkSeconds links;

  static BesideSeconds of(const Cost &cost) { return {cost.hideable, cost.hideableLower, cost.hideableLinks}; }
};
// A step's seconds of a device's passes: compute, and what they wait for.
struct PassSeconds {
  double forward = 0, backward = 0;
  double waitedForward = 0, waitedBackward = 0;
  LinkSeconds linksForward = {}, linksBackward = {}; // of what is waited for

  // So many times what units do for a microbatch.
  static PassSeconds of(const Cost &work, double microbatches);
  PassSeconds &add(const PassSeconds &other, double times);
};
struct Hidden {
  double seconds = 0; // of those beside the passes, what compute hides
  // By how much a step gets longer beyond what is not hidden: where both use the same link, what runs beside makes the
  // passes wait longer.
  double contention = 0;
};
Hidden hide(const SplitModel &model, const BesideSeconds &beside, const PassSeconds &passes);
// The passes of a step in which collectives over parameters with this ZeRO stage run, those of the first or the last
// microbatch or all: seconds that these collectives come on by where the passes compute, and those in which the passes
// wait.
struct Window {
  double hides = 0, waited = 0;
  LinkSeconds links; // of what is waited for
  // The seconds that take turns: beside them collectives come on as much as they may where nothing crowds them.
  double turn() const { return hides + waited; }
};
Window windowOf(const SplitModel &model, int zero, const PassSeconds &passes);

// A stage sends what it has made of a microbatch while it computes the next one. Where the collectives that these
// passes wait for use the same link they take longer, by as much as hide() has it; messages come on at full speed while
// a device computes. Adds that to `work`, of a microbatch, and gives its seconds. None where devices share a memory:
// they copy between two commands.
double holdBySends(const Cluster &cluster, const LinkSeconds &sent, Cost &work);

// Adds to the prediction what copies from and to the host's memory take: those of the state, and both ways for `kept`
// bytes of activations a microbatch, which the step's forward and backward seconds hide. Gives what nothing hides of
// these.
double addHostTime(const SplitModel &model, double seconds, double exposed, double kept, double forward,
                   double backward, Predicted &predicted);

// Bytes and peaks by unit kind, with the setting's recomputation.
std::vector<Cost> unitMemory(const SplitModel &model, const std::vector<int> &choice);

// Beside UnitLayout::shared, sumBytes of each: every stage that reads such a parameter has a sum as large.
std::vector<double> sumsOfShared(const SplitModel &model, const std::vector<int> &choice);

// By unit kind: bytes of the parameters that ZeRO-3 has gathered at once where a segment is computed again. Gathered
// when that begins, they stay until the segment's gradients have been made.
std::vector<double> gatheredAgain(const SplitModel &model, const std::vector<int> &choice);

struct Evaluation {
  Cost cost; // of a step
  Predicted predicted;
  bool isPossible = true;
};
Evaluation evaluate(const SplitModel &model, const std::vector<int> &choice, CollectiveSink *sink = nullptr);

// Model FLOPs a second of one of so many devices, and their share of its peak, given the step's seconds.
void fillRate(const SplitModel &model, int64_t devices, Predicted &predicted);

} // namespace cleave::planner
