#include "compiler/report/comparison.h"
#include "compiler/report/page/document.h"
#include "compiler/report/tables.h"
#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace cleave::report {
namespace {

// Four digits, or all of those before the point.
std::string plainNumber(double value) {
  return value >= 1e4 && value < 1e12 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

double samplesPerSecond(const Report &report) { return double(report.batch) / report.predicted.stepSeconds; }

// For a million samples; 0: the cluster has no price.
double priceOf(const Report &report) { return report.pricePerHour / 3600 * 1e6 / samplesPerSecond(report); }

std::vector<Row> rowsOf(const std::vector<ClusterResult> &results) {
  const bool hasPrice =
      std::ranges::any_of(results, [](const ClusterResult &one) { return one.report && one.report->pricePerHour > 0; });
  std::vector<Row> rows = {{"cluster", "devices", "step time", "samples/s", "a device", "of its peak"}};
  if (hasPrice) rows[0].push_back("price of 1 M");
  rows[0].insert(rows[0].end(), {"memory", "split"});
  for (const ClusterResult &one : results) {
    Row &row = rows.emplace_back(Row{one.cluster, fmt::format("{}", one.devices)});
    if (!one.report) {
      row.push_back("no plan fits");
      row.resize(rows[0].size());
      continue;
    }
    const Report &report = *one.report;
    const double rate = samplesPerSecond(report);
    row.insert(row.end(),
               {formatSeconds(report.predicted.stepSeconds), plainNumber(rate),
                plainNumber(rate / double(report.devices)), fmt::format("{:.0f} %", 100 * report.predicted.mfu)});
    if (hasPrice) row.push_back(report.pricePerHour > 0 ? plainNumber(priceOf(report)) : "");
    row.insert(row.end(), {formatBytes(report.predicted.memory.total()), report.mesh.str()});
  }
  return rows;
}

// The cluster of the smallest figure; null: none has it.
const ClusterResult *least(const std::vector<ClusterResult> &results, double (*figure)(const Report &)) {
  const ClusterResult *found = nullptr;
  for (const ClusterResult &one : results)
    if (one.report && figure(*one.report) > 0 && (!found || figure(*one.report) < figure(*found->report))) found = &one;
  return found;
}

std::string verdictOf(const std::vector<ClusterResult> &results) {
  const ClusterResult *fastest = least(results, [](const Report &one) { return 1 / samplesPerSecond(one); });
  const ClusterResult *cheapest = least(results, priceOf);
  if (!fastest) return "No plan fits on any of these clusters.";
  std::string text = fmt::format("{} is the fastest: {} samples a second.", fastest->cluster,
                                 plainNumber(samplesPerSecond(*fastest->report)));
  if (cheapest)
    text += fmt::format(" {} is the cheapest: {} for a million samples.", cheapest->cluster,
                        plainNumber(priceOf(*cheapest->report)));
  return text;
}

} // namespace

std::string comparisonText(const std::vector<ClusterResult> &results) {
  return fmt::format("{}", fmt::join(tableLines(rowsOf(results), "", "  "), ""));
}

std::string comparisonHtml(const std::vector<ClusterResult> &results) {
  auto first = std::ranges::find_if(results, [](const ClusterResult &one) { return one.report.has_value(); });
  const std::string model = first == results.end() ? "A model" : first->report->model;
  Document page(fmt::format("{} on {} clusters", model, results.size()));
  page.header(fmt::format("<p class=\"verdict\">{}</p>\n", escape(verdictOf(results))));
  page.section("clusters", "Clusters", table("Each with its best split", rowsOf(results)));
  std::string faults;
  for (const ClusterResult &one : results)
    if (!one.report) faults += fmt::format("<h3>{}</h3>\n<p>{}</p>\n", escape(one.cluster), escape(one.error));
  if (!faults.empty()) page.section("faults", "Where no plan fits", faults);
  return page.take();
}

std::string comparisonJson(const std::vector<ClusterResult> &results) {
  std::string json;
  for (const ClusterResult &one : results) {
    json += json.empty() ? "[" : ",\n";
    json += one.report
                ? renderJson(*one.report)
                : nlohmann::json({{"cluster", one.cluster}, {"devices", one.devices}, {"error", one.error}}).dump();
  }
  return json + "]\n";
}

Result<std::vector<ClusterResult>> comparisonFromJson(const std::string &text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_array()) return inputError("is no list of estimates");
  std::vector<ClusterResult> results;
  for (const auto &entry : json) {
    if (entry.is_object() && entry.contains("error")) {
      if (!entry["error"].is_string() || !entry.contains("cluster") || !entry["cluster"].is_string())
        return inputError("is no list of estimates");
      results.push_back({entry["cluster"], entry.value("devices", int64_t(0)), std::nullopt, entry["error"]});
      continue;
    }
    Result<Report> report = fromJson(entry.dump());
    if (!report) return report.status();
    const std::string cluster = report->cluster;
    const int64_t devices = report->devices;
    results.push_back({cluster, devices, std::move(*report), ""});
  }
  return results;
}

} // namespace cleave::report
