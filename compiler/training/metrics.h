// What an evaluation measures beside the loss (recipe::Metric), on core ops: sums over the batch, which the runtime adds
// up over batches and divides (runtime/train/evaluation.h).
//
//   accuracy   metric.accuracy = sum_b [argmax_c x[b,c] = t[b]]    metric.accuracy.count = labels that count
//   confusion  metric.confusion[t,p] = number of samples of class t that the model takes for p
//
// A class is found by comparing, as in losses.h, so that a split of the classes over devices needs only partial sums.
#pragma once
#include "compiler/recipe/recipe.h"
#include "compiler/training/step_function.h"
#include "dialects/onnx/formula.h"

namespace cleave::training {

// Results of these names are for the evaluation only.
inline constexpr llvm::StringLiteral metricPrefix = "metric.";

// What a metric compares. Labels are classes, [b] for an output [b,C]; or probabilities or numbers, as the output.
struct Compared {
  mlir::Value output, labels;
  int64_t axis = -1; // of the classes; counted from the end where negative
};

// `metric` of the loss `loss`: its sum, and its count where it is a mean. Error, as a text: it cannot compare these.
Result<llvm::SmallVector<StepResult>> buildMetric(onnx::Formula f, const recipe::Metric &metric,
                                                  const recipe::Loss &loss, Compared of);

} // namespace cleave::training
