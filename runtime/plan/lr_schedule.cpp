#include "runtime/plan/lr_schedule.h"
#include "runtime/base/packed.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numbers>

namespace cleave::runtime {

double learningRate(const plan::Schedule &schedule, int64_t step) {
  double peak = schedule.peak(), least = schedule.min();
  int64_t warmup = schedule.warmup_steps(), total = schedule.total_steps();
  if (step < warmup) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup);
  const std::string &kind = schedule.kind();
  double t = total > warmup
                 ? std::clamp(static_cast<double>(step - warmup) / static_cast<double>(total - warmup), 0.0, 1.0)
                 : 1.0;
  if (kind == "linear") return peak + (least - peak) * t;
  if (kind == "cosine") return least + (peak - least) * (1.0 + std::cos(std::numbers::pi * t)) / 2.0;
  if (kind == "step") {
    auto passed =
        std::count_if(schedule.milestones().begin(), schedule.milestones().end(), [&](int64_t m) { return step >= m; });
    return peak * std::pow(schedule.gamma(), static_cast<double>(passed));
  }
  return peak;
}

Status checkSchedule(const plan::Schedule &schedule) {
  const std::string &kind = schedule.kind();
  if (kind != "" && kind != "constant" && kind != "linear" && kind != "cosine" && kind != "step")
    return inputError(fmt::format("learning-rate schedule '{}' is not known (constant, linear, cosine, step)", kind));
  if (schedule.warmup_steps() < 0) return inputError("learning-rate schedule: warmup_steps is negative");
  if ((kind == "linear" || kind == "cosine") && schedule.total_steps() < schedule.warmup_steps())
    return inputError(fmt::format("learning-rate schedule: total_steps {} is less than warmup_steps {}",
                                  schedule.total_steps(), schedule.warmup_steps()));
  return Status::ok();
}

namespace {
Status appendNumber(std::string &bytes, plan::DType dtype, double value) {
  if (dtype == plan::F32)
    bytes += packed(static_cast<float>(value));
  else if (dtype == plan::F64)
    bytes += packed(value);
  else
    return inputError(fmt::format("a host scalar of type {}", name(dtype)));
  return Status::ok();
}
Status appendInteger(std::string &bytes, plan::DType dtype, uint64_t value) {
  if (byteSize(dtype) == 8 && dtype != plan::F64)
    bytes += packed(value);
  else if (dtype == plan::I32 || dtype == plan::U32)
    bytes += packed(static_cast<uint32_t>(value));
  else
    return inputError(fmt::format("an integer host scalar of type {}", name(dtype)));
  return Status::ok();
}
} // namespace

Status hostScalarBytes(const plan::HostScalar &scalar, const plan::Training &training, int64_t step, int64_t skipped,
                       int64_t microbatch, std::string &bytes) {
  plan::DType dtype = scalar.buffer().dtype();
  uint64_t counter = static_cast<uint64_t>(step + 1) + (static_cast<uint64_t>(microbatch) << 32);
  bytes.clear();
  switch (scalar.kind()) {
  case plan::HostScalar::LEARNING_RATE:
    return appendNumber(bytes, dtype, learningRate(training.lr(), step));
  case plan::HostScalar::ONE_MINUS_POWER:
    return appendNumber(bytes, dtype, 1.0 - std::pow(scalar.base(), static_cast<double>(step - skipped + 1)));
  case plan::HostScalar::STEP:
    if (elementCount(scalar.buffer().shape()) == 2)
      CLEAVE_RETURN_IF_ERROR(appendInteger(bytes, dtype, training.seed()));
    return appendInteger(bytes, dtype, counter);
  case plan::HostScalar::SEED:
    return appendInteger(bytes, dtype, training.seed());
  default:
    return inputError("a host scalar of a kind this runtime does not know");
  }
}

} // namespace cleave::runtime
