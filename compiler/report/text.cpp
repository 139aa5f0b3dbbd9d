#include "compiler/report/report.h"
#include <ranges>
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::report {
namespace {

using Row = std::vector<std::string>;

// Columns as wide as their widest cell; the last one runs on.
std::string table(const std::vector<Row> &rows) {
  std::vector<size_t> widths;
  for (const Row &row : rows)
    for (size_t i = 0; i < row.size(); ++i) {
      if (widths.size() <= i) widths.push_back(0);
      widths[i] = std::max(widths[i], row[i].size());
    }
  std::string out;
  for (const Row &row : rows) {
    std::string line = " ";
    for (size_t i = 0; i < row.size(); ++i) line += fmt::format(" {:<{}}", row[i], i + 1 == row.size() ? 0 : widths[i]);
    out += line.erase(line.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string percent(double part, double all) { return all > 0 ? fmt::format("{:.0f} %", 100 * part / all) : ""; }

} // namespace

std::string renderText(const Report &report) {
  const planner::Predicted &predicted = report.predicted;
  const planner::MemoryBreakdown &memory = predicted.memory;
  std::string out = fmt::format("{} on {} ({} device{})\n\n", report.model, report.cluster, report.devices,
                                report.devices == 1 ? "" : "s");
  out += fmt::format("split      mesh {}, zero {}, microbatches {}, recompute {}{}\n", report.mesh.str(), report.zero,
                     report.microbatches, report.recompute, report.like.empty() ? "" : ", like " + report.like);
  out += fmt::format("batch      {} samples a step\n", report.batch);
  double other = std::max(0.0, predicted.stepSeconds - predicted.computeSeconds -
                                   predicted.exposedCommunicationSeconds - predicted.bubbleSeconds);
  out += fmt::format(
      "step time  {} predicted: compute {}, exposed communication {}, bubble {}{}; {} of communication hidden\n",
      formatSeconds(predicted.stepSeconds), formatSeconds(predicted.computeSeconds),
      formatSeconds(predicted.exposedCommunicationSeconds), formatSeconds(predicted.bubbleSeconds),
      other > 1e-9 ? ", other " + formatSeconds(other) : "", formatSeconds(predicted.hiddenCommunicationSeconds));
  out += fmt::format("           {:.3g} TFLOP/s a device, {:.1f} % of its peak\n", predicted.tflopsPerDevice,
                     100 * predicted.mfu);
  out += fmt::format("memory     {} a device {}, of {}\n", formatBytes(memory.total()),
                     report.memoryIsPlanned
                         ? fmt::format("planned (estimated {})", formatBytes(report.estimatedMemoryBytes))
                         : "estimated",
                     formatBytes(report.deviceMemoryBytes));
  std::vector<Row> rows;
  for (auto [what, bytes] : {std::pair{"parameters", memory.parameters},
                             {"gradients", memory.gradients},
                             {"optimizer", memory.optimizer},
                             {"activations", memory.activations},
                             {"workspace", memory.workspace}})
    rows.push_back({"        ", what, formatBytes(bytes), percent(bytes, memory.total())});
  out += table(rows);
  out += fmt::format("search     {} choices priced in {:.2f} s, optimality gap {:.2f} %\n", report.candidates,
                     report.searchSeconds, 100 * report.gap);
  for (const std::string &note : report.notes) out += "note       " + note + "\n";

  out += fmt::format("\ncollectives of a step on one device ({})\n",
                     report.collectivesArePlanned ? "as planned" : "predicted");
  rows = {{"collective", "over", "count", "bytes", "alone", "why"}};
  constexpr size_t shown = 16; // the largest; JSON has all
  for (const planner::CollectiveTotal &row : report.collectives | std::views::take(shown))
    rows.push_back({row.op, fmt::format("{}", fmt::join(row.axes, ",")), fmt::format("{}", row.count),
                    formatBytes(row.bytes), formatSeconds(row.seconds), row.why});
  out += report.collectives.empty() ? "  none\n" : table(rows);
  if (report.collectives.size() > shown) {
    double bytes = 0;
    for (const planner::CollectiveTotal &row : report.collectives | std::views::drop(shown)) bytes += row.bytes;
    out += fmt::format("  and {} smaller kinds, {} together (--format json lists them)\n",
                       report.collectives.size() - shown, formatBytes(bytes));
  }

  if (!report.alternatives.empty()) {
    out += "\nalternatives\n";
    rows = {{"name", "mesh", "zero", "micro", "recompute", "step time", "memory", "why not"}};
    for (const planner::Alternative &row : report.alternatives) {
      if (row.mesh.axes.empty()) {
        rows.push_back({row.name, "-", "", "", "", "", "", row.whyNot});
        continue;
      }
      rows.push_back({row.name, row.mesh.str(), fmt::format("{}", row.zero), fmt::format("{}", row.microbatches),
                      planner::name(row.recompute), formatSeconds(row.stepSeconds), formatBytes(row.memoryBytes),
                      row.whyNot.empty() ? "as fast" : row.whyNot});
    }
    out += table(rows);
  }

  // Parameters that lie alike are one line.
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const ParameterLayout &row : report.parameters) {
    std::string layout = fmt::format("[{}] {}", fmt::join(row.dims, ","), row.parameter);
    if (row.state != row.parameter) layout += " state " + row.state;
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto &group) { return group.first == layout; });
    if (found == groups.end())
      groups.push_back({layout, {row.name}});
    else
      found->second.push_back(row.name);
  }
  if (!groups.empty()) out += "\nparameters\n";
  rows.clear();
  for (const auto &[layout, names] : groups)
    rows.push_back({layout, names.size() == 1 ? names[0] : fmt::format("{} and {} more", names[0], names.size() - 1)});
  return out + table(rows);
}

} // namespace cleave::report
