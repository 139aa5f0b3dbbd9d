#include "tools/cleave/step_times.h"
#include "runtime/train/trainer.h"
#include "tools/cleave/commands.h"
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fmt/core.h>
#include <unistd.h>

namespace cleave::tool {
namespace {

runtime::TrainOptions trainOptions(const StepRun &run, int64_t steps) {
  runtime::TrainOptions train;
  train.steps = run.warmup + steps, train.threads = run.threads, train.model = run.model;
  if (!run.data.empty()) train.data = run.data;
  train.onWarning = [](const std::string &text) { print(stderr, text + "\n"); };
  return train;
}

} // namespace

Result<StepTimes> timeSteps(const plan::Plan &plan, const StepRun &run) {
  StepTimes times;
  runtime::TrainOptions timed = trainOptions(run, run.steps);
  timed.onStep = [&](const runtime::StepMetrics &metrics) {
    if (metrics.step > run.warmup) times.seconds.push_back(metrics.stepSeconds);
    times.bytes = std::max(times.bytes, metrics.peakBytesPerDevice);
  };
  CLEAVE_RETURN_IF_ERROR(runtime::train(plan, timed));
  return times;
}

StepTrace::StepTrace()
    : path((std::filesystem::temp_directory_path() / fmt::format("cleave-steps-{}.json", ::getpid())).string()) {}

StepTrace::~StepTrace() {
  std::error_code gone;
  std::filesystem::remove(path, gone);
}

Status StepTrace::write(const plan::Plan &plan, const StepRun &run) {
  runtime::TrainOptions traced = trainOptions(run, tracedSteps);
  traced.trace = path;
  return runtime::train(plan, traced);
}

double percentile(const std::vector<double> &sorted, double part) {
  const double rank = std::ceil(part * double(sorted.size()));
  return sorted[size_t(std::max(1.0, rank)) - 1];
}

} // namespace cleave::tool
