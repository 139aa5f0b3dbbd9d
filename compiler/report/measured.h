// Measured figures of a plan's run beside the predicted ones: `cleave report X.plan --measured FILE`.
//
//   Result<Measured> measured = readMeasured(report, {"x.trace"});     // of `cleave run --trace` or `--metrics`
//   measured->step           "step", 4.7 ms predicted, 5.1 ms measured: 1.09 x
//   measured->layers[0]      "h.0 .. h.11 (12 x)", 1.2 ms predicted, 2.4 ms measured: 2.00 x
//
// Seconds are those of a step on one device, the mean of the devices that were traced, and of several steps the median.
// A run's first step warms up and does not count where there are others.
#pragma once
#include "compiler/report/tables.h"

namespace cleave::report {

struct MeasuredRow {
  std::string what;                                                         // "step"; a part of the model; "all_reduce"
  dist::Axes axes = {};                                                     // of a collective
  std::string why = {};                                                     // of a collective
  double predicted = 0, measured = 0;                                       // seconds; 0: none
  double ratio() const { return predicted > 0 ? measured / predicted : 0; } // 0: nothing was predicted
};

struct Measured {
  int64_t firstStep = 0, lastStep = 0, devices = 0; // devices: whose traces there are
  MeasuredRow step{"step"};
  double memoryBytes = 0;               // of the fullest device; 0: the files do not say
  std::vector<MeasuredRow> sums;        // compute, and collectives as if nothing hid them
  std::vector<MeasuredRow> layers;      // compute by part of the model
  std::vector<MeasuredRow> collectives; // by kind, axes and reason; with the wait for other devices
};

// Rows are in order of their distance from the prediction: the largest ratio, of either to the other, first; what takes
// less than a hundredth of the step by both comes last. Errors: a file that is neither, or that has no step.
Result<Measured> readMeasured(const Report &report, const std::vector<std::string> &files);

// "The step takes 5.10 ms, 1.09 x the predicted 4.70 ms. Most off: all_reduce over dp, 3.10 x."
std::string verdict(const Measured &measured);
std::vector<Row> sumRows(const Measured &measured);
std::vector<Row> layerRows(const Measured &measured);
std::vector<Row> collectiveRows(const Measured &measured);
std::string renderText(const Measured &measured);
std::string renderJson(const Measured &measured);

} // namespace cleave::report
