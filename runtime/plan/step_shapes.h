// The routines of a plan whose steps have several shapes (plan.proto, StepShape): one for each length of samples, or
// for each stage of a ramp of the batch.
//
//   lengths 128, 512:              routineOf(plan, "step", 0) -> "step@128";       routineOf(plan, "step", 1) -> "step"
//   a smaller batch to step 100:   routineOf(plan, "step", 0) -> "step@until100";  routineOf(plan, "step", 1) -> "step"
#pragma once
#include "plan/plan.pb.h"
#include <algorithm>
#include <string>
#include <string_view>

namespace cleave::runtime {

// The end of the names of a shape's routines and fragments; "" for the last.
inline std::string suffixOf(const plan::StepShape &shape) {
  if (shape.until() > 0) return "@until" + std::to_string(shape.until());
  return "@" + std::to_string(shape.length());
}
inline std::string_view suffixIn(std::string_view name) { return name.substr(std::min(name.find('@'), name.size())); }
// How many; 1 where all steps have one.
inline size_t shapesOf(const plan::Plan &plan) { return plan.shapes_size() > 1 ? size_t(plan.shapes_size()) : 1; }
// Null: the last, whose numbers are those of the plan.
inline const plan::StepShape *shapeBesideLast(const plan::Plan &plan, size_t shape) {
  return shape + 1 < shapesOf(plan) ? &plan.shapes(static_cast<int>(shape)) : nullptr;
}
inline std::string suffixOf(const plan::Plan &plan, size_t shape) {
  const plan::StepShape *of = shapeBesideLast(plan, shape);
  return of ? suffixOf(*of) : "";
}
inline std::string routineOf(const plan::Plan &plan, const std::string &routine, size_t shape) {
  return routine + suffixOf(plan, shape);
}
// The unsplit step of a shape.
inline const std::string &referenceOf(const plan::Plan &plan, size_t shape) {
  const plan::StepShape *of = shapeBesideLast(plan, shape);
  return of ? of->reference_graph() : plan.reference_graph();
}
inline double flopsOfStep(const plan::Plan &plan, size_t shape) {
  const plan::StepShape *of = shapeBesideLast(plan, shape);
  return of ? of->flops_per_step() : plan.training().flops_per_step();
}
// Samples of a step.
inline int64_t batchOf(const plan::Plan &plan, size_t shape) {
  const plan::StepShape *of = shapeBesideLast(plan, shape);
  return of ? of->global_batch() : plan.training().global_batch();
}
inline int64_t tokensPerSample(const plan::Plan &plan, size_t shape) {
  const plan::StepShape *of = shapeBesideLast(plan, shape);
  return of ? of->tokens_per_sample() : plan.training().tokens_per_sample();
}

// Whether the step's number tells its shape, not its samples' length.
inline bool isRamp(const plan::Plan &plan) { return shapesOf(plan) > 1 && plan.shapes(0).until() > 0; }
// Of a ramp, the shape of step `step`, from 0; else the last.
inline size_t rampedShape(const plan::Plan &plan, int64_t step) {
  size_t shape = isRamp(plan) ? 0 : shapesOf(plan) - 1;
  while (shape + 1 < shapesOf(plan) && plan.shapes(static_cast<int>(shape)).until() <= step) ++shape;
  return shape;
}

} // namespace cleave::runtime
