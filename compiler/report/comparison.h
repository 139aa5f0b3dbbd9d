// The same model on several clusters: a row each.
//
//   comparisonText(results)   cluster     devices step time samples/s a device of its peak price of 1 M memory  split
//                             h100-80g:8  8       4.1 ms    7.8e+03   975      41 %        $2.85        9.1 GiB dp=8
//   comparisonJson(results)   [REPORT, {"cluster": "v100-16g:8", "devices": 8, "error": "no plan fits: ..."}]
#pragma once
#include "compiler/report/report.h"
#include <optional>

namespace cleave::report {

struct ClusterResult {
  std::string cluster;
  int64_t devices = 0;
  std::optional<Report> report;
  std::string error; // where no plan fits
};

std::string comparisonText(const std::vector<ClusterResult> &results);
std::string comparisonHtml(const std::vector<ClusterResult> &results);
// docs/reference/schemas/estimates.schema.json
std::string comparisonJson(const std::vector<ClusterResult> &results);
Result<std::vector<ClusterResult>> comparisonFromJson(const std::string &json);

} // namespace cleave::report
