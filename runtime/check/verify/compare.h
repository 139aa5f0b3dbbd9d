// `cleave verify`: does the split compute what the unsplit model computes?
//
// The plan runs on all its devices in this process, beside the reference executor, which interprets the unpartitioned
// training step in double precision: no partitioning, no compiled kernels, no memory plan in common. Both get the same
// random inputs, and every step starts from the split's state; after it the loss, the gradient norm and every
// persistent tensor must agree. For a plan in bf16 or fp16 the reference rounds where the graph does; the bounds are
// then those of the type: half its epsilon (the spacing of numbers near 1: 2^-7, 2^-10) for losses, twice for norms and
// tensors. State in 8 bits may have the code beside the reference's: a number between two rounds to either.
//
// Where the two do not agree, the model itself is asked how well its numbers are defined: the reference does the step
// again with every result rounded to float32, and so from weights that differ in their last bit. A model with an
// activation at the kink of its ReLU, to a rounding, has two gradients there, and no way of computing it is the right
// one. The bounds are then wider by eight times what that has changed, and the report says so.
//
//   Result<Comparison> seen = comparePlan(plan, {.steps = 2});
//   seen->agrees(), seen->text()
#pragma once
#include "plan/plan.pb.h"
#include "runtime/base/status.h"
#include <functional>
#include <string>
#include <vector>

namespace cleave::runtime {

// Where the unsplit model is.
struct CompareProgress {
  int64_t step = 1, steps = 1, microbatch = 0; // steps are counted from 1
  double done = 0;                             // share of the microbatch's operators
};

struct CompareOptions {
  // 0: two, one of each shape (step_shapes.h), or three where steps run into each other: of the third a part is
  // computed, in the second, with weights that only then differ from those of the step before.
  int64_t steps = 0;
  std::string model;             // the .onnx file, if it moved
  bool checkWeights = false;     // as TrainOptions
  double lossTolerance = 1e-4;   // relative
  double normTolerance = 1e-3;   // relative, of the gradient norm
  double tensorTolerance = 1e-3; // difference's L2 norm over the tensor's
  std::function<void(const CompareProgress &)> progress;
};

struct StepComparison {
  int64_t step = 0;
  int64_t length = 0; // of its samples, where the plan has several
  int64_t batch = 0;  // of a ramp
  double loss = 0, referenceLoss = 0, gradNorm = 0, referenceGradNorm = 0;
  double lossSensitivity = 0, normSensitivity = 0; // relative; 0: not asked for
  bool skips = false;                              // a step without a gradient norm
};
struct TensorComparison {
  std::string name;
  double error = 0; // ||split - unsplit|| / ||unsplit||, over the elements that were compared
  int64_t skipped = 0;
  int64_t step = 0;       // after which
  double scale = 0;       // the least norm that an error is relative to
  double sensitivity = 0; // the same of the unsplit model when its weights' last bit differs; 0: not asked for
};

struct Comparison {
  CompareOptions options;
  bool sensitivityMeasured = false;
  std::string basis; // where it is not the step of the whole batch at once: what the split is compared with
  std::vector<StepComparison> steps;
  std::vector<TensorComparison> tensors; // persistent tensors, each after its worst step; worst first
  std::vector<std::string> faults;       // what disagrees; empty: everything agrees

  bool agrees() const { return faults.empty(); }
  std::string text() const;
  std::string json() const;
};

// Errors: a plan without a reference graph, weights that cannot be read, a run that failed.
Result<Comparison> comparePlan(const plan::Plan &plan, const CompareOptions &options);

} // namespace cleave::runtime
