#include "runtime/executor/metrics_file.h"
#include "runtime/executor/trainer.h"
#include "runtime/plan/plan_file.h"
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

namespace cleave::runtime {

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
  if (path == "-") {
    file = stdout;
    return Status::ok();
  }
  if (stepsDone > 0) {
    std::ifstream before(path);
    std::string kept;
    for (std::string line; std::getline(before, line);) {
      auto entry = nlohmann::json::parse(line, nullptr, false);
      if (entry.is_object() && entry.contains("step") && entry["step"].is_number_integer() &&
          entry["step"].get<int64_t>() <= stepsDone)
        kept += line + "\n";
    }
    CLEAVE_RETURN_IF_ERROR(writeFileAtomically(kept, path));
  }
  file = std::fopen(path.c_str(), stepsDone > 0 ? "a" : "w");
  if (!file) return inputError(fmt::format("cannot write metrics to {}: {}", path, std::strerror(errno)));
  return Status::ok();
}

Status MetricsFile::write(const std::string &line) {
  if (!file) return Status::ok();
  if (std::fprintf(file, "%s\n", line.c_str()) < 0 || std::fflush(file) != 0)
    return runError(fmt::format("cannot write metrics to {}: {}", path, std::strerror(errno)));
  return Status::ok();
}

} // namespace cleave::runtime
