#include "tools/cleave/run_summary.h"
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

void RunSummary::add(const runtime::StepMetrics &step) {
  ++steps;
  seconds += step.stepSeconds;
  samples += step.samplesPerSecond * step.stepSeconds;
  tokens += step.tokensPerSecond * step.stepSeconds;
  peakBytes = std::max(peakBytes, step.peakBytesPerDevice);
  if (!firstLoss) firstLoss = step.loss;
  lastLoss = step.loss;
  if (!step.evalLoss) return;
  lastEvalLoss = step.evalLoss;
  if (!bestEvalLoss || std::isnan(*bestEvalLoss) || *step.evalLoss < *bestEvalLoss) bestEvalLoss = step.evalLoss;
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
          {"last_eval_loss", numberOrNull(lastEvalLoss)},
          {"best_eval_loss", numberOrNull(bestEvalLoss)},
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
