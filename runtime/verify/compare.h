// `cleave verify`: does the split compute what the unsplit model computes?
//
// The plan runs on all its devices in this process, beside the reference executor, which interprets the unpartitioned
// training step in double precision: no partitioning, no compiled kernels, no memory plan in common. Both get the same
// weights and the same random inputs; after every step the loss, the gradient norm and every persistent tensor must
// agree. Of a plan in bf16 or fp16 the reference rounds where the graph does; the bounds are then those of the type:
// half its epsilon (the spacing of numbers near 1: 2^-7, 2^-10) for losses, twice for norms and tensors.
//
//   Result<Comparison> seen = comparePlan(plan, {.steps = 2});
//   seen->agrees(), seen->text()
#pragma once
#include "plan/plan.pb.h"
#include "runtime/status.h"
#include <string>
#include <vector>

namespace cleave::runtime {

struct CompareOptions {
  int64_t steps = 2;
  std::string model;              // the .onnx file, if it moved
  double lossTolerance = 1e-4;    // relative
  double normTolerance = 1e-3;    // relative, of the gradient norm
  double tensorTolerance = 1e-3;  // difference's L2 norm over the tensor's
};

struct StepComparison {
  int64_t step = 0;
  double loss = 0, referenceLoss = 0, gradNorm = 0, referenceGradNorm = 0;
};
struct TensorComparison {
  std::string name;
  double error = 0; // ||split - unsplit|| / ||unsplit||, over the elements that were compared
  int64_t skipped = 0;
};

struct Comparison {
  CompareOptions options;
  std::vector<StepComparison> steps;
  std::vector<TensorComparison> tensors; // persistent tensors after the last step, worst first
  std::vector<std::string> faults;       // what disagrees; empty: everything agrees

  bool agrees() const { return faults.empty(); }
  std::string text() const;
  std::string json() const;
};

// Errors: a plan without a reference graph, weights that cannot be read, a run that failed.
Result<Comparison> comparePlan(const plan::Plan &plan, const CompareOptions &options);

} // namespace cleave::runtime
