// The figures of a step under their keys. One table gives the lines of a metrics file, TensorBoard's scalars and the
// page docs/reference/metrics.md.
#pragma once
#include "runtime/train/trainer.h"
#include <nlohmann/json.hpp>
#include <vector>

namespace cleave::runtime {

struct MetricValue {
  std::string key;
  const char *meaning;  // markdown
  nlohmann::json value; // null: the step has none
};

std::vector<MetricValue> metricValues(const StepMetrics &metrics);

// {"loss": 0.21, "samples": 512, "metrics": {"accuracy": 0.93, "confusion": [[...], ...]}}
nlohmann::ordered_json toJson(const EvaluationResult &evaluation);

} // namespace cleave::runtime
