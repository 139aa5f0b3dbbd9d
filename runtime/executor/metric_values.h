// The figures of a step under their keys (docs/reference/metrics.md), in the order of the page. Null: the step has
// none.
#pragma once
#include "runtime/executor/trainer.h"
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

namespace cleave::runtime {

std::vector<std::pair<const char *, nlohmann::json>> metricValues(const StepMetrics &metrics);

} // namespace cleave::runtime
