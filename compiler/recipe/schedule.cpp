#include "compiler/recipe/recipe.h"
#include <algorithm>
#include <cmath>
#include <numbers>

namespace cleave::recipe {

double Schedule::at(int64_t step) const {
  int64_t t = step - 1;
  if (t < warmupSteps) return peak * static_cast<double>(t + 1) / static_cast<double>(warmupSteps);
  double length = static_cast<double>(std::max<int64_t>(1, totalSteps - warmupSteps));
  double progress = std::min(1.0, static_cast<double>(t - warmupSteps) / length);
  switch (kind) {
  case ScheduleKind::Constant:
    return peak;
  case ScheduleKind::Linear:
    return peak + (min - peak) * progress;
  case ScheduleKind::Cosine:
    return min + (peak - min) * (1.0 + std::cos(std::numbers::pi * progress)) / 2.0;
  case ScheduleKind::Step: {
    auto passed =
        std::count_if(milestones.begin(), milestones.end(), [&](int64_t milestone) { return milestone <= t; });
    return peak * std::pow(gamma, static_cast<double>(passed));
  }
  }
  return peak;
}

} // namespace cleave::recipe
