// What a report tells of splits that were compiled beside the chosen one.
#include "compiler/report/tables.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::report {
namespace {

const TriedSplit &chosenOf(const Report &report) {
  return *std::ranges::find_if(report.tried, [](const TriedSplit &one) { return one.isChosen; });
}

// The seconds that the choice was made by.
double decidingSeconds(const Report &report, const TriedSplit &one) {
  return chosenOf(report).measuredSeconds > 0 ? one.measuredSeconds : one.simulatedSeconds;
}

std::string lossText(const Report &report, const TriedSplit &one) {
  if (!one.split.whyNot.empty()) return one.split.whyNot;
  const double part = decidingSeconds(report, one) / decidingSeconds(report, chosenOf(report)) - 1;
  const char *how = one.measuredSeconds > 0 ? "measured" : "simulated";
  return part < 0.0005 ? fmt::format("as fast, {}", how) : fmt::format("{:.1f} % slower, {}", 100 * part, how);
}

} // namespace

std::string splitText(const planner::Alternative &row) {
  std::string text = fmt::format("{}, zero {}", row.mesh.str(), row.zero);
  if (row.microbatches > 1) text += fmt::format(", microbatches {}", row.microbatches);
  if (row.schedule != "none") text += ", schedule " + row.schedule;
  if (row.recompute != planner::Recompute::None) text += fmt::format(", recompute {}", planner::name(row.recompute));
  if (row.offload != planner::Offload::None) text += fmt::format(", offload {}", planner::name(row.offload));
  return fmt::format("{} ({})", text, row.name);
}

void noteTriedSplits(Report &report) {
  for (const TriedSplit &one : report.tried) {
    if (one.isChosen) continue;
    for (planner::Alternative &row : report.alternatives)
      if (row.name == one.split.name) row.whyNot = lossText(report, one);
    if (!one.split.whyNot.empty())
      report.notes.push_back(fmt::format("{} was left out: {}", splitText(one.split), one.split.whyNot));
  }
}

std::string triedText(const Report &report) {
  const TriedSplit &first = report.tried.front(), &chosen = chosenOf(report);
  if (report.tried.size() == 1) return "no other split was compiled beside it";
  auto figures = [&](const TriedSplit &one) {
    const std::string measured =
        one.measuredSeconds > 0 ? fmt::format("{} measured, ", formatSeconds(one.measuredSeconds)) : "";
    return fmt::format("{}{} simulated, {} predicted", measured, formatSeconds(one.simulatedSeconds),
                       formatSeconds(one.split.stepSeconds));
  };
  const bool isMeasured = chosen.measuredSeconds > 0;
  if (first.isChosen)
    return fmt::format("of {} splits that were compiled and {} the search's choice is the fastest: {}",
                       std::ranges::count(report.tried, "", [](const TriedSplit &one) { return one.split.whyNot; }),
                       isMeasured ? "run" : "simulated", figures(chosen));
  return fmt::format("{} changed the choice to {}: {}; the search's choice was {}: {}",
                     isMeasured ? "measuring" : "simulation", splitText(chosen.split), figures(chosen),
                     splitText(first.split), first.split.whyNot.empty() ? figures(first) : first.split.whyNot);
}

std::vector<Row> triedRows(const Report &report) {
  std::vector<Row> rows = {{"split", "predicted", "simulated", "measured", "memory", ""}};
  auto cell = [](double seconds) { return seconds > 0 ? formatSeconds(seconds) : "-"; };
  for (const TriedSplit &one : report.tried)
    rows.push_back({splitText(one.split), cell(one.split.stepSeconds), cell(one.simulatedSeconds),
                    cell(one.measuredSeconds), formatBytes(one.split.memoryBytes),
                    one.isChosen ? "chosen" : lossText(report, one)});
  return rows;
}

} // namespace cleave::report
