#include "runtime/plan/lr_schedule.h"
#include "runtime/base/packed.h"
#include "runtime/plan/dtype.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <numbers>
#include <set>

namespace cleave::runtime {

namespace {

// From `from` to `to`, `share` of the way there.
double annealed(const std::string &how, double from, double to, double share) {
  if (how == "linear") return from + (to - from) * share;
  if (how == "sqrt") return from + (to - from) * std::sqrt(share);
  return to + (from - to) * (1 + std::cos(std::numbers::pi * share)) / 2;
}

double shareOf(double steps, double all) { return all > 0 ? std::clamp(steps / all, 0.0, 1.0) : 1.0; }

double oneCycle(const plan::Schedule &schedule, double step) {
  const double top = schedule.warmup_share() * double(schedule.total_steps()) - 1,
               end = double(schedule.total_steps()) - 1;
  if (step <= top) return annealed(schedule.anneal(), schedule.start(), schedule.peak(), shareOf(step, top));
  return annealed(schedule.anneal(), schedule.peak(), schedule.min(), shareOf(step - top, end - top));
}

double withRestarts(const plan::Schedule &schedule, int64_t step) {
  int64_t period = schedule.period();
  const int64_t factor = schedule.period_factor();
  if (factor == 1)
    step %= period;
  else
    while (step >= period) {
      step -= period;
      if (__builtin_mul_overflow(period, factor, &period)) period = std::numeric_limits<int64_t>::max();
    }
  return annealed("cosine", schedule.peak(), schedule.min(), double(step) / double(period));
}

} // namespace

double learningRate(const plan::Schedule &schedule, int64_t step) {
  const double peak = schedule.peak(), least = schedule.min();
  const int64_t warmup = schedule.warmup_steps(), total = schedule.total_steps();
  const std::string &kind = schedule.kind();
  if (kind == "one_cycle") return oneCycle(schedule, double(step));
  if (step < warmup && schedule.has_start())
    return annealed("linear", schedule.start(), peak, double(step) / double(warmup));
  if (step < warmup) return peak * double(step + 1) / double(warmup);
  const double share = shareOf(double(step - warmup), double(total - warmup));
  if (kind == "linear" || kind == "cosine") return annealed(kind, peak, least, share);
  if (kind == "polynomial") return least + (peak - least) * std::pow(1 - share, schedule.power());
  if (kind == "exponential") return peak * std::pow(schedule.gamma(), double(step - warmup));
  if (kind == "cosine_restarts") return withRestarts(schedule, step - warmup);
  if (kind == "wsd") {
    const int64_t decay = schedule.decay_steps();
    return annealed(schedule.anneal(), peak, least, shareOf(double(step - (total - decay)), double(decay)));
  }
  if (kind == "step") {
    auto passed =
        std::count_if(schedule.milestones().begin(), schedule.milestones().end(), [&](int64_t m) { return step >= m; });
    return peak * std::pow(schedule.gamma(), static_cast<double>(passed));
  }
  return peak;
}

Status checkSchedule(const plan::Schedule &schedule) {
  static const std::set<std::string> kinds = {"",           "constant",    "linear",          "cosine", "step",
                                              "polynomial", "exponential", "cosine_restarts", "wsd",    "one_cycle"};
  const std::string &kind = schedule.kind();
  if (!kinds.contains(kind)) return inputError(fmt::format("learning-rate schedule '{}' is not known", kind));
  if (schedule.warmup_steps() < 0) return inputError("learning-rate schedule: warmup_steps is negative");
  if ((kind == "linear" || kind == "cosine") && schedule.total_steps() < schedule.warmup_steps())
    return inputError(fmt::format("learning-rate schedule: total_steps {} is less than warmup_steps {}",
                                  schedule.total_steps(), schedule.warmup_steps()));
  if (kind == "cosine_restarts" && (schedule.period() < 1 || schedule.period_factor() < 1))
    return inputError("learning-rate schedule: a period or its factor is below 1");
  if (kind == "one_cycle" && !schedule.has_start()) return inputError("learning-rate schedule: one_cycle has no start");
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
    return appendNumber(bytes, dtype,
                        1.0 - std::pow(scalar.base(), static_cast<double>(step - skipped + 1 - scalar.since())));
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
