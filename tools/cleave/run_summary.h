// `cleave run --json`: a run in one JSON object (docs/reference/schemas/run.schema.json).
//
//   RunSummary summary;
//   options.onStep = [&](const StepMetrics &step) { summary.add(step); };
//   options.onEnd = [&](const RunSpan &span) { writeJson("-", summary.json(span, options)); };
#pragma once
#include "runtime/train/trainer.h"
#include <chrono>
#include <nlohmann/json.hpp>

namespace cleave::tool {

class RunSummary {
public:
  void add(const runtime::StepMetrics &step);
  // `restarts`: attempts of the run that failed before this one, which the summary is of.
  nlohmann::ordered_json json(const runtime::RunSpan &span, const runtime::TrainOptions &options, int restarts) const;

private:
  const std::chrono::steady_clock::time_point begun = std::chrono::steady_clock::now();
  int64_t steps = 0, peakBytes = 0;
  double seconds = 0, samples = 0, tokens = 0; // of all steps
  std::optional<double> firstLoss, lastLoss, bestEvalLoss;
  std::optional<runtime::EvaluationResult> lastEvaluation;
};

// "loss 0.2114  accuracy 0.93"
std::string evaluationText(const runtime::EvaluationResult &evaluation);

} // namespace cleave::tool
