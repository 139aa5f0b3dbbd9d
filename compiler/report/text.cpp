#include "compiler/report/tables.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <map>
#include <ranges>

namespace cleave::report {
namespace {

std::string table(const std::vector<Row> &rows) { return fmt::format("{}", fmt::join(tableLines(rows), "")); }

// The first so many rows below the heads.
std::string shortTable(std::vector<Row> rows, size_t shown) {
  rows.resize(std::min(rows.size(), shown + 1));
  return table(rows);
}

// The collectives, and below each the tensors that it moves.
std::string collectiveTable(const Report &report, size_t shown) {
  constexpr size_t named = 4;
  std::vector<Row> rows = collectiveRows(report);
  rows.resize(std::min(rows.size(), shown + 1));
  const std::vector<std::string> lines = tableLines(rows);
  std::string out = lines[0];
  for (size_t i = 1; i < lines.size(); ++i) {
    out += lines[i];
    const std::string tensors = movedTensors(report.collectives[i - 1], named);
    if (!tensors.empty()) out += "    of " + tensors + "\n";
  }
  return out;
}

// Times by part of the model and by kind of operation.
std::string timeTables(const Report &report) {
  constexpr size_t shown = 8;
  std::string out;
  for (bool byLayer : {true, false}) {
    const std::vector<planner::TimePart> sums = timeSums(report, byLayer);
    if (sums.empty()) continue;
    std::vector<Row> rows = timeRows(report, byLayer);
    if (sums.size() > shown) {
      planner::TimePart rest;
      for (const planner::TimePart &sum : sums | std::views::drop(shown)) add(rest, sum);
      rest.part = fmt::format("{} others", sums.size() - shown);
      rows.resize(shown + 1);
      rows.push_back(timeRow(report, rest));
    }
    out += byLayer ? "\nwhere a device's step time goes\n" + table(rows) : "\n" + table(rows);
  }
  return out;
}

std::string stageTable(const Report &report) {
  if (report.stages.size() < 2) return "";
  constexpr size_t shown = 16;
  std::string out = "\nstages of the pipeline (seconds of a step)\n" + shortTable(stageRows(report), shown);
  if (report.stages.size() > shown)
    out += fmt::format("  and {} more (--format json lists them)\n", report.stages.size() - shown);
  return out;
}

// Kinds of memory that vary over the step, each as eight heights.
std::string memoryLines(const Report &report) {
  if (report.memoryOverTime.size() < 2) return "";
  static const char *heights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string out;
  for (auto [what, kind] : {std::pair{"gradients", &planner::MemoryBreakdown::gradients},
                            {"activations", &planner::MemoryBreakdown::activations},
                            {"workspace", &planner::MemoryBreakdown::workspace}}) {
    double least = std::numeric_limits<double>::infinity(), most = 0;
    for (const planner::MemoryPoint &point : report.memoryOverTime) {
      least = std::min(least, point.memory.*kind);
      most = std::max(most, point.memory.*kind);
    }
    if (most - least <= 1e-9 * most) continue;
    std::string line;
    for (const planner::MemoryPoint &point : report.memoryOverTime)
      line += heights[std::min<size_t>(7, size_t(point.memory.*kind / most * 7.999))];
    out += fmt::format("           over the step{}, {} in use up to {}: {}\n",
                       report.memoryIsPlanned ? " (estimated)" : "", what, formatBytes(most), line);
  }
  return out;
}

std::string sensitivityTable(const Report &report) {
  if (report.sensitivities.empty()) return "";
  return "\nwhat better machines would bring (this split, priced again; with more memory another may be better)\n" +
         table(sensitivityRows(report));
}

// "; 148 tensors trained, 3 constant"
std::string countOfRoles(const std::vector<ReportedTensor> &tensors) {
  std::map<std::string, int> counts;
  for (const ReportedTensor &tensor : tensors) ++counts[tensor.role];
  std::vector<std::string> words;
  for (const auto &[role, count] : counts) words.push_back(fmt::format("{} {}", count, role));
  return words.empty() ? "" : fmt::format("; tensors: {}", fmt::join(words, ", "));
}

} // namespace

std::string renderText(const Report &report) {
  const planner::Predicted &predicted = report.predicted;
  const planner::MemoryBreakdown &memory = predicted.memory;
  std::string out = fmt::format("{} on {} ({} device{})\n\n", report.model, report.cluster, report.devices,
                                report.devices == 1 ? "" : "s");
  out += fmt::format("split      mesh {}, zero {}, microbatches {}, recompute {}{}{}{}\n", report.mesh.str(),
                     zeroText(report), report.microbatches, recomputeText(report),
                     report.offload == "none" ? "" : ", offload " + report.offload,
                     report.schedule == "none" ? "" : ", schedule " + report.schedule,
                     report.like.empty() ? "" : ", like " + report.like);
  out += fmt::format("batch      {} samples a step\nsoftware   {}\n", report.batch, report.software);
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
  out += table(rows) + memoryLines(report);
  if (report.offload != "none")
    out += fmt::format(
        "host       {} of the host's memory a device; copies take {} each way at once, {} of it exposed\n",
        formatBytes(memory.host), formatSeconds(predicted.hostSeconds), formatSeconds(predicted.exposedHostSeconds));
  out += fmt::format("search     {} choices priced in {:.2f} s, optimality gap {:.2f} %\n"
                     "           of {}\n",
                     report.candidates, report.searchSeconds, 100 * report.gap, comparedPlans(report));
  if (!report.import.empty()) out += fmt::format("import     {}{}\n", report.import, countOfRoles(report.tensors));
  if (report.proof) out += fmt::format("proof      {}\n", proofText(*report.proof));
  for (const std::string &note : report.notes) out += "note       " + note + "\n";

  out += fmt::format("\ncollectives of a step on one device ({}{})\n",
                     report.collectivesArePlanned ? "as planned" : "predicted",
                     report.mesh.axisSize("pp") > 1 ? ", the mean of the pipeline's ranks" : "");
  constexpr size_t shown = 16; // the largest; JSON has all
  out += report.collectives.empty() ? "  none\n" : collectiveTable(report, shown);
  if (report.collectives.size() > shown) {
    double bytes = 0;
    for (const planner::CollectiveTotal &row : report.collectives | std::views::drop(shown)) bytes += row.bytes;
    out += fmt::format("  and {} smaller kinds, {} together (--format json lists them)\n",
                       report.collectives.size() - shown, formatBytes(bytes));
  }

  if (!report.commands.empty())
    out += fmt::format("\ncommands of a step on one device (as planned{})\n",
                       report.mesh.axisSize("pp") > 1 ? ", the mean of the pipeline's ranks" : "") +
           table(commandRows(report));

  out += stageTable(report) + timeTables(report) + sensitivityTable(report);

  if (!report.alternatives.empty()) out += "\nalternatives\n" + table(alternativeRows(report));

  // Parameters that lie alike are one line.
  std::vector<std::pair<std::string, std::vector<std::string>>> groups;
  for (const ParameterLayout &row : report.parameters) {
    std::string layout = fmt::format("[{}] {}", fmt::join(row.dims, ","), row.parameter);
    if (row.state.empty())
      layout += " frozen";
    else if (row.state != row.parameter)
      layout += " state " + row.state;
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
