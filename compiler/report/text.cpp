// A report in lines: the verdict and why, then the tables.
#include "compiler/report/tables.h"
#include "compiler/report/verdict.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <map>
#include <ranges>

namespace cleave::report {
namespace {

class Text {
public:
  Text(const Report &report, int width) : report(report), width(size_t(std::max(width, 40))) {}

  std::string take() {
    addHead();
    addWhy();
    addAlternatives();
    addMemory();
    addTimes();
    addCollectives();
    addStages();
    addParameters();
    return std::move(out);
  }

private:
  static constexpr size_t labelWidth = 11;

  // "split      mesh dp=4 ...", wrapped behind the label.
  void line(const std::string &label, const std::string &text) {
    out += fmt::format("{:<{}}{}\n", label, labelWidth, wrapped(text, width, labelWidth));
  }
  void title(const std::string &text) { out += "\n" + wrapped(text, width) + "\n"; }
  void table(const std::vector<Row> &rows) { out += joined(tableLines(rows, "  ", " ", width)); }
  static std::string joined(const std::vector<std::string> &lines) { return fmt::format("{}", fmt::join(lines, "")); }

  void addHead() {
    const planner::Predicted &predicted = report.predicted;
    out += wrapped(fmt::format("{} on {} ({} device{})", report.model, report.cluster, report.devices,
                               report.devices == 1 ? "" : "s"),
                   width) +
           "\n";
    out += wrapped(verdict(report), width) + "\n\n";
    line("split", fmt::format("mesh {}, zero {}, microbatches {}, recompute {}{}{}{}{}", report.mesh.str(),
                              zeroText(report), report.microbatches, recomputeText(report),
                              report.offload == "none" ? "" : ", offload " + report.offload,
                              report.chunks == 1 ? "" : fmt::format(", loss in {} chunks", report.chunks),
                              report.schedule == "none" ? "" : ", schedule " + report.schedule,
                              report.like.empty() ? "" : ", like " + report.like));
    line("batch", fmt::format("{} samples a step: {}", report.batch, rateText(report)));
    line("software", report.software);
    const double other = std::max(0.0, predicted.stepSeconds - predicted.computeSeconds -
                                           predicted.exposedCommunicationSeconds - predicted.bubbleSeconds);
    std::string parts = "compute " + formatSeconds(predicted.computeSeconds);
    for (auto [what, seconds] : {std::pair{"exposed communication", predicted.exposedCommunicationSeconds},
                                 {"bubble", predicted.bubbleSeconds},
                                 {"other", other > 1e-9 ? other : 0}})
      if (seconds > 0) parts += fmt::format(", {} {}", what, formatSeconds(seconds));
    const double hidden = predicted.hiddenCommunicationSeconds;
    line("step time",
         fmt::format("{} predicted: {}{}", formatSeconds(predicted.stepSeconds), parts,
                     hidden > 0 ? fmt::format("; {} of communication hidden", formatSeconds(hidden)) : ""));
    if (report.predictionError > 0)
      line("", fmt::format("nine of ten such predictions are within {:.0f} %: {} to {}", 100 * report.predictionError,
                           formatSeconds(predicted.stepSeconds / (1 + report.predictionError)),
                           formatSeconds(predicted.stepSeconds * (1 + report.predictionError))));
    if (const std::string simulated = simulatedText(report); !simulated.empty()) line("", simulated);
    line("", speedText(report));
    line("search", fmt::format("{} choice{} priced in {:.2f} s; {} (optimality gap {:.2f} % of {})", report.candidates,
                               report.candidates == 1 ? "" : "s", report.searchSeconds, gapText(report),
                               100 * report.gap, comparedPlans(report)));
    if (!report.tried.empty()) line("refined", triedText(report));
    if (!report.import.empty()) line("import", report.import + countOfRoles());
    if (report.proof) line("proof", proofText(*report.proof));
    for (const std::string &note : report.notes) line("note", note);
  }

  // "; tensors: 148 trained, 3 constant"
  std::string countOfRoles() const {
    std::map<std::string, int> counts;
    for (const ReportedTensor &tensor : report.tensors) ++counts[tensor.role];
    std::vector<std::string> words;
    for (const auto &[role, count] : counts) words.push_back(fmt::format("{} {}", count, role));
    return words.empty() ? "" : fmt::format("; tensors: {}", fmt::join(words, ", "));
  }

  void addWhy() {
    const std::vector<LostFamily> lost = whyThisSplit(report);
    if (lost.empty()) return;
    title("why this split");
    std::vector<Row> rows;
    for (const LostFamily &one : lost) rows.push_back({one.family, one.why});
    out += joined(tableLines(rows, "  ", "  ", width));
  }

  void addAlternatives() {
    if (report.alternatives.empty()) return;
    title("alternatives");
    table(alternativeRows(report));
  }

  void addMemory() {
    const planner::MemoryBreakdown &memory = report.predicted.memory;
    title(fmt::format("memory: {} a device {}, of {}; {} of these stay in reserve", formatBytes(memory.total()),
                      report.memoryIsPlanned
                          ? fmt::format("planned (the search estimated {})", formatBytes(report.estimatedMemoryBytes))
                          : "estimated",
                      formatBytes(report.deviceMemoryBytes), formatBytes(report.reservedMemoryBytes)));
    std::vector<Row> rows;
    for (auto [what, bytes] : {std::pair{"parameters", memory.parameters},
                               {"gradients", memory.gradients},
                               {"optimizer", memory.optimizer},
                               {"activations", memory.activations},
                               {"workspace", memory.workspace}})
      if (bytes > 0) rows.push_back({what, formatBytes(bytes), percent(bytes, memory.total())});
    table(rows);
    addMemoryOverTime();
    if (report.offload != "none")
      out +=
          wrapped(fmt::format("  {} of the host's memory a device; copies take {} each way at once, {} of it exposed",
                              formatBytes(memory.host), formatSeconds(report.predicted.hostSeconds),
                              formatSeconds(report.predicted.exposedHostSeconds)),
                  width, 2) +
          "\n";
  }

  // Kinds of memory that vary over the step, each as eight heights.
  void addMemoryOverTime() {
    if (report.memoryOverTime.size() < 2) return;
    static const char *heights[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
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
      out += fmt::format("  over the step{}, {} in use up to {}: {}\n", report.memoryIsPlanned ? " (estimated)" : "",
                         what, formatBytes(most), line);
    }
  }

  // By part of the model and by kind of operation.
  void addTimes() {
    for (bool byLayer : {true, false}) {
      std::vector<Row> rows = timeRows(report, byLayer);
      if (rows.size() < 2) continue;
      title(byLayer ? "where a device's step time goes: by layer" : "by kind of operation; Contract: matrix products");
      constexpr size_t shown = 8;
      if (rows.size() > shown + 1) {
        planner::TimePart rest;
        for (const planner::TimePart &sum : timeSums(report, byLayer) | std::views::drop(shown)) add(rest, sum);
        rest.part = fmt::format("{} others", rows.size() - 1 - shown);
        rows.resize(shown + 1);
        rows.push_back(timeRow(report, rest));
      }
      table(rows);
    }
    if (const std::vector<Row> rows = sensitivityRows(report); !rows.empty()) {
      title("what better machines would bring (this split, priced again; with more memory another may be better)");
      table(rows);
    }
  }

  // Below each collective the tensors that it moves.
  void addCollectives() {
    const char *mean = report.mesh.axisSize(dist::pipelineAxis) > 1 ? ", the mean of the pipeline's ranks" : "";
    constexpr size_t shown = 16, named = 4; // the largest; JSON has all
    if (!report.collectives.empty()) {
      title(fmt::format("collectives of a step on one device ({}{})",
                        report.collectivesArePlanned ? "as planned" : "predicted", mean));
      std::vector<Row> rows = collectiveRows(report);
      rows.resize(std::min(rows.size(), shown + 1));
      const std::vector<std::string> lines = tableLines(rows, "  ", " ", width);
      out += lines[0];
      for (size_t i = 1; i < lines.size(); ++i) {
        out += lines[i];
        const std::string tensors = movedTensors(report.collectives[i - 1], named);
        if (!tensors.empty()) out += "    " + wrapped("of " + tensors, width - 4, 4) + "\n";
      }
      if (report.collectives.size() > shown) {
        double bytes = 0;
        for (const planner::CollectiveTotal &row : report.collectives | std::views::drop(shown)) bytes += row.bytes;
        out += fmt::format("  and {} smaller kinds, {} together (--format json lists them)\n",
                           report.collectives.size() - shown, formatBytes(bytes));
      }
    }
    if (report.commands.empty()) return;
    title(fmt::format("commands of a step on one device (as planned{})", mean));
    table(commandRows(report));
  }

  void addStages() {
    if (report.stages.size() < 2) return;
    constexpr size_t shown = 16;
    title("stages of the pipeline (seconds of a step)");
    std::vector<Row> rows = stageRows(report);
    rows.resize(std::min(rows.size(), shown + 1));
    table(rows);
    if (report.stages.size() > shown)
      out += fmt::format("  and {} more (--format json lists them)\n", report.stages.size() - shown);
  }

  // Those that lie alike are one line.
  void addParameters() {
    std::vector<std::pair<std::string, std::vector<std::string>>> groups;
    for (const ParameterLayout &row : report.parameters) {
      std::string layout = fmt::format("[{}] {}", fmt::join(row.dims, ","), row.parameter);
      if (row.state.empty())
        layout += " frozen";
      else if (row.state != row.parameter)
        layout += " state " + row.state;
      auto found = std::ranges::find_if(groups, [&](const auto &group) { return group.first == layout; });
      if (found == groups.end())
        groups.push_back({layout, {row.name}});
      else
        found->second.push_back(row.name);
    }
    if (groups.empty()) return;
    title("parameters: shape, and the mesh axes that split each dimension");
    std::vector<Row> rows;
    for (const auto &[layout, names] : groups)
      rows.push_back(
          {layout, names.size() == 1 ? names[0] : fmt::format("{} and {} more", names[0], names.size() - 1)});
    table(rows);
  }

  const Report &report;
  const size_t width;
  std::string out;
};

} // namespace

std::string renderText(const Report &report, int width) { return Text(report, width).take(); }

} // namespace cleave::report
