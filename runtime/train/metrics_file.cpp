#include "runtime/train/metrics_file.h"
#include "runtime/base/atomic_file.h"
#include "runtime/train/metric_values.h"
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>

namespace cleave::runtime {
namespace {

std::vector<std::string> columnsOf(const StepMetrics &shape) {
  std::vector<std::string> columns;
  for (const MetricValue &metric : metricValues(shape)) columns.push_back(metric.key);
  return columns;
}

// A number that there is none of, as the norm of a skipped step, leaves its column empty.
std::string csv(const StepMetrics &metrics, const std::vector<std::string> &columns) {
  std::map<std::string, std::string> texts;
  for (const auto &[key, meaning, value] : metricValues(metrics))
    if (const std::string text = value.dump(); text != "null") texts[key] = text;
  std::string row;
  for (const std::string &column : columns) row += (&column == columns.data() ? "" : ",") + texts[column];
  return row;
}

// The step of a line that one of these files has; 0: none, such as a header.
int64_t stepOf(const std::string &line, bool isCsv) {
  int64_t step = 0;
  if (isCsv) {
    (void)std::from_chars(line.data(), line.data() + line.size(), step);
    return step;
  }
  const auto entry = nlohmann::json::parse(line, nullptr, false);
  const bool tells = entry.is_object() && entry.contains("step") && entry["step"].is_number_integer();
  return tells ? entry["step"].get<int64_t>() : 0;
}

} // namespace

std::vector<MetricValue> metricValues(const StepMetrics &metrics) {
  auto orNull = [](const auto &value) { return value ? nlohmann::json(*value) : nlohmann::json(); };
  // clang-format off
  std::vector<MetricValue> values = {
    {"step", "number of the step, from 1", metrics.step},
    {"loss", "mean over the global batch, whatever the split", metrics.loss},
    {"grad_norm", "global L2 norm before clipping; a tied parameter counts once. `null` in a skipped step of fp16; absent where the plan "
                  "does not compute it", orNull(metrics.gradNorm)},
    {"loss_scale", "fp16: scale of the next step", orNull(metrics.lossScale)},
    {"skipped", "steps so far that changed nothing: in fp16 because gradients overflowed, with `skip_outliers` because their norm was unusual", orNull(metrics.skipped)},
    {"lr", "learning rate of the step", metrics.learningRate},
    {"step_time_s", "seconds", metrics.stepSeconds},
    {"data_s", "seconds of the step in which the first process read samples or waited for them; on GPUs, while they had nothing "
     "to do", metrics.dataSeconds},
    {"samples_per_s", "of all devices together", metrics.samplesPerSecond},
    {"tokens_per_s", "of all devices together, without padding where samples have several lengths; 0 if samples are not sequences", metrics.tokensPerSecond},
    {"tflops_per_device", "the model's FLOP of a step, without recomputation, over time and devices", metrics.tflopsPerDevice},
    {"peak_bytes_per_device", "memory of the fullest device", metrics.peakBytesPerDevice},
    {"host_bytes_per_device", "host memory of the fullest device; with `--offload` only",
     metrics.hostBytesPerDevice > 0 ? nlohmann::json(metrics.hostBytesPerDevice) : nlohmann::json()},
    {"eval_loss", "loss on the evaluation samples, in steps with an evaluation",
     metrics.evaluation ? nlohmann::json(metrics.evaluation->loss) : nlohmann::json()},
  };
  // clang-format on
  if (metrics.evaluation) {
    for (const auto &[name, loss] : metrics.evaluation->losses)
      values.push_back({"eval_loss." + name, "of the loss of this name, as `eval_loss`", loss});
    for (const auto &[name, value] : metrics.evaluation->metrics)
      values.push_back({"eval_" + name, "a metric of the recipe's `eval.metrics`", value});
    for (const auto &[name, rows] : metrics.evaluation->confusion)
      values.push_back({"eval_" + name, "a metric of the recipe's `eval.metrics`", rows});
  }
  for (const auto &[name, value] : metrics.named)
    values.push_back({name,
                      name.starts_with("grad_norm.") ? "of the parameters in a group of the recipe's `grad_norms`"
                                                     : "of several losses, the one of this name, without its `scale`",
                      orNull(value)});
  return values;
}

nlohmann::ordered_json toJson(const EvaluationResult &evaluation) {
  nlohmann::ordered_json metrics = nlohmann::ordered_json::object();
  for (const auto &[name, value] : evaluation.metrics) metrics[name] = value;
  for (const auto &[name, rows] : evaluation.confusion) metrics[name] = rows;
  return {{"loss", evaluation.loss}, {"samples", evaluation.samples}, {"metrics", std::move(metrics)}};
}

std::string StepMetrics::json() const {
  nlohmann::ordered_json line;
  for (const auto &[key, meaning, value] : metricValues(*this))
    if (!value.is_null()) line[key] = value;
  return line.dump();
}

MetricsFile::~MetricsFile() { close(); }

void MetricsFile::close() {
  if (file && file != stdout) std::fclose(file);
  file = nullptr;
}

Status MetricsFile::open(const std::string &where, int64_t stepsDone, const StepMetrics &shape) {
  path = where;
  isCsv = path.ends_with(".csv");
  columns = columnsOf(shape);
  const std::string header = fmt::format("{}\n", fmt::join(columns, ","));
  if (path == "-") {
    file = stdout;
    return Status::ok();
  }
  if (stepsDone > 0) {
    std::ifstream before(path);
    std::string kept;
    for (std::string line; std::getline(before, line);)
      if (const int64_t step = stepOf(line, isCsv); step > 0 && step <= stepsDone) kept += line + "\n";
    if (isCsv) kept = header + kept;
    CLEAVE_RETURN_IF_ERROR(writeFileAtomically(kept, path));
  }
  file = std::fopen(path.c_str(), stepsDone > 0 ? "a" : "w");
  if (!file) return inputError(fmt::format("cannot write metrics to {}: {}", path, std::strerror(errno)));
  return isCsv && stepsDone == 0 ? line(header) : Status::ok();
}

Status MetricsFile::write(const StepMetrics &metrics) {
  return file ? line((isCsv ? csv(metrics, columns) : metrics.json()) + "\n") : Status::ok();
}

Status MetricsFile::line(const std::string &text) {
  if (std::fputs(text.c_str(), file) < 0 || std::fflush(file) != 0)
    return runError(fmt::format("cannot write metrics to {}: {}", path, std::strerror(errno)));
  return Status::ok();
}

} // namespace cleave::runtime
