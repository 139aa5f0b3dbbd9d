#include "runtime/executor/metrics_file.h"
#include "runtime/executor/trainer.h"
#include "runtime/plan/plan_file.h"
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <fstream>
#include <nlohmann/json.hpp>

namespace cleave::runtime {
namespace {

// Columns of CSV: what json() may have.
constexpr const char *columns[] = {"step",
                                   "loss",
                                   "grad_norm",
                                   "loss_scale",
                                   "skipped",
                                   "lr",
                                   "step_time_s",
                                   "samples_per_s",
                                   "tokens_per_s",
                                   "tflops_per_device",
                                   "peak_bytes_per_device",
                                   "host_bytes_per_device",
                                   "eval_loss"};

std::string csv(const StepMetrics &metrics) {
  const auto values = nlohmann::json::parse(metrics.json());
  std::string row;
  for (const char *column : columns) {
    if (column != columns[0]) row += ',';
    if (auto value = values.find(column); value != values.end() && !value->is_null()) row += value->dump();
  }
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

std::string StepMetrics::json() const {
  nlohmann::ordered_json line = {{"step", step}, {"loss", loss}};
  if (gradNorm) line["grad_norm"] = *gradNorm;
  if (lossScale) line["loss_scale"] = *lossScale;
  if (skipped) line["skipped"] = *skipped;
  line["lr"] = learningRate;
  line["step_time_s"] = stepSeconds;
  line["samples_per_s"] = samplesPerSecond;
  line["tokens_per_s"] = tokensPerSecond;
  line["tflops_per_device"] = tflopsPerDevice;
  line["peak_bytes_per_device"] = peakBytesPerDevice;
  if (hostBytesPerDevice > 0) line["host_bytes_per_device"] = hostBytesPerDevice;
  if (evalLoss) line["eval_loss"] = *evalLoss;
  return line.dump();
}

MetricsFile::~MetricsFile() { close(); }

void MetricsFile::close() {
  if (file && file != stdout) std::fclose(file);
  file = nullptr;
}

Status MetricsFile::open(const std::string &where, int64_t stepsDone) {
  path = where;
  isCsv = path.ends_with(".csv");
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
  return file ? line((isCsv ? csv(metrics) : metrics.json()) + "\n") : Status::ok();
}

Status MetricsFile::line(const std::string &text) {
  if (std::fputs(text.c_str(), file) < 0 || std::fflush(file) != 0)
    return runError(fmt::format("cannot write metrics to {}: {}", path, std::strerror(errno)));
  return Status::ok();
}

} // namespace cleave::runtime
