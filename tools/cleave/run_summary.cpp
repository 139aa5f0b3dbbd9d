#include "tools/cleave/run_summary.h"
#include "runtime/train/metric_values.h"
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fmt/core.h>

namespace cleave::tool {
namespace {

using Json = nlohmann::ordered_json;

// Null where there is none. JSON has no number for a loss that is none, so that is null, too.
template <typename Number> Json numberOrNull(const std::optional<Number> &value) {
  return value ? Json(*value) : Json();
}
Json pathOrNull(const std::string &path) { return path.empty() ? Json() : Json(path); }

} // namespace

std::string evaluationText(const runtime::EvaluationResult &evaluation) {
  std::string text = fmt::format("loss {:.4f}", evaluation.loss);
  for (const auto &[name, value] : evaluation.metrics) text += fmt::format("  {} {:.4g}", name, value);
  return text;
}

void RunSummary::add(const runtime::StepMetrics &step) {
  ++steps;
  seconds += step.stepSeconds;
  samples += step.samplesPerSecond * step.stepSeconds;
  tokens += step.tokensPerSecond * step.stepSeconds;
  peakBytes = std::max(peakBytes, step.peakBytesPerDevice);
  if (!firstLoss) firstLoss = step.loss;
  lastLoss = step.loss;
  if (!step.evaluation) return;
  lastEvaluation = step.evaluation;
  const double loss = step.evaluation->loss;
  if (!bestEvalLoss || std::isnan(*bestEvalLoss) || loss < *bestEvalLoss) bestEvalLoss = loss;
}

Json RunSummary::json(const runtime::RunSpan &span, const runtime::TrainOptions &options, int restarts) const {
  const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - begun;
  auto rate = [&](double count) { return seconds > 0 ? Json(count / seconds) : Json(); };
  Json resumed;
  if (!span.resumedFrom.empty()) resumed = {{"step", span.resumedStep}, {"snapshot", span.resumedFrom}};
  return {{"status", span.signal == 0 ? "done" : "stopped"},
          {"signal", span.signal == 0 ? Json() : Json(fmt::format("SIG{}", sigabbrev_np(span.signal)))},
          {"step", span.step},
          {"steps", span.steps},
          {"steps_run", steps},
          {"resumed_from", resumed},
          {"restarts", restarts},
          {"first_loss", numberOrNull(firstLoss)},
          {"last_loss", numberOrNull(lastLoss)},
          {"last_eval_loss", lastEvaluation ? Json(lastEvaluation->loss) : Json()},
          {"best_eval_loss", numberOrNull(bestEvalLoss)},
          {"last_eval_metrics", lastEvaluation ? runtime::toJson(*lastEvaluation)["metrics"] : Json()},
          {"ended_early", span.isEarly},
          {"seconds", whole.count()},
          {"steps_seconds", seconds},
          {"samples_per_s", rate(samples)},
          {"tokens_per_s", rate(tokens)},
          {"peak_bytes_per_device", steps > 0 ? Json(peakBytes) : Json()},
          {"snapshots", pathOrNull(options.snapshots)},
          {"metrics", pathOrNull(options.metrics)},
          {"tensorboard", pathOrNull(options.tensorboard)},
          {"prometheus", pathOrNull(options.prometheus)},
          {"trace", pathOrNull(options.trace)}};
}

} // namespace cleave::tool
