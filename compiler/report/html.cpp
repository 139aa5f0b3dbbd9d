// One page: figures, bars for time and memory, the tables of the text form. Nothing is loaded from elsewhere.
#include "compiler/report/tables.h"
#include "runtime/plan/printable.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::report {

std::string escape(const std::string &text) {
  std::string out;
  for (char c : runtime::printable(text)) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

namespace {

struct Part {
  const char *name;
  double value;
  std::string label;
};

std::string bar(const std::vector<Part> &parts) {
  static const char *colours[] = {"#3b6ea5", "#e08e45", "#7a9e3f", "#a65e8b", "#999999"};
  double total = 0;
  for (const Part &part : parts) total += part.value;
  std::string segments, legend;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].value <= 0 || total <= 0) continue;
    segments += fmt::format("<span style=\"width:{:.3f}%;background:{}\"></span>", 100 * parts[i].value / total,
                            colours[i % 5]);
    legend +=
        fmt::format("<li><i style=\"background:{}\"></i>{} {}</li>", colours[i % 5], parts[i].name, parts[i].label);
  }
  return fmt::format("<div class=\"bar\">{}</div><ul class=\"legend\">{}</ul>", segments, legend);
}

std::string row(const Row &cells, const char *tag = "td", const char *style = "") {
  std::string out = fmt::format("<tr{}>", style);
  for (const std::string &cell : cells) out += fmt::format("<{0}>{1}</{0}>", tag, escape(cell));
  return out + "</tr>\n";
}

std::vector<Row> collectiveAndTensorRows(const Report &report) {
  std::vector<Row> rows = collectiveRows(report);
  rows[0].push_back("tensors");
  for (size_t i = 0; i < report.collectives.size(); ++i)
    rows[i + 1].push_back(movedTensors(report.collectives[i], planner::mostMovedTensors));
  return rows;
}

std::string table(const std::vector<Row> &rows) {
  std::string out = "<table>";
  for (const Row &cells : rows) out += row(cells, &cells == rows.data() ? "th" : "td");
  return out + "</table>\n";
}

// Memory over the step, its kinds one upon the other.
std::string memoryChart(const Report &report) {
  constexpr double width = 900, height = 160;
  static const char *colours[] = {"#3b6ea5", "#e08e45", "#7a9e3f", "#999999", "#a65e8b"};
  if (report.memoryOverTime.size() < 2) return "";
  double end = report.memoryOverTime.back().seconds, most = report.deviceMemoryBytes;
  for (const planner::MemoryPoint &point : report.memoryOverTime) most = std::max(most, point.memory.total());
  if (end <= 0 || most <= 0) return "";
  auto y = [&](double bytes) { return height * (1 - bytes / most); };
  std::string areas;
  std::vector<double> below(report.memoryOverTime.size(), 0.0);
  for (int kind = 0; kind < 5; ++kind) {
    std::string top, bottom;
    for (size_t i = 0; i < below.size(); ++i) {
      const planner::MemoryBreakdown &m = report.memoryOverTime[i].memory;
      double bytes[] = {m.parameters, m.gradients, m.optimizer, m.workspace, m.activations};
      double x = width * report.memoryOverTime[i].seconds / end;
      bottom = fmt::format("{:.1f},{:.1f} ", x, y(below[i])) + bottom;
      below[i] += bytes[kind];
      top += fmt::format("{:.1f},{:.1f} ", x, y(below[i]));
    }
    areas += fmt::format("<polygon fill=\"{}\" points=\"{}{}\"/>", colours[kind], top, bottom);
  }
  return fmt::format(
      "<svg viewBox=\"0 0 {0} {1}\" width=\"100%\" role=\"img\"><title>memory over the step: parameters, "
      "gradients, optimizer, workspace, activations; the frame is the device's</title>"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"none\" stroke=\"#ccc\"/>{2}</svg>\n",
      width, height, areas);
}

constexpr const char *style =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:.5em 0 1.5em}td,th{text-align:left;padding:.15em .8em .15em "
    "0;border-bottom:1px solid #ddd;vertical-align:top}"
    ".bar{display:flex;height:1.4em;margin:.4em 0}.bar span{display:block}"
    ".legend{list-style:none;padding:0;display:flex;flex-wrap:wrap;gap:.2em 1.2em}"
    ".legend i{display:inline-block;width:.8em;height:.8em;margin-right:.4em}.no{color:#999}";

} // namespace

std::string renderHtml(const Report &report) {
  const planner::Predicted &predicted = report.predicted;
  const planner::MemoryBreakdown &memory = predicted.memory;
  std::string title = escape(fmt::format("{} on {}", report.model, report.cluster));
  std::string out = fmt::format("<!doctype html>\n<html lang=\"en\"><head><meta "
                                "charset=\"utf-8\"><title>{0}</title><style>{1}</style></head><body>\n<h1>{0}</h1>\n",
                                title, style);
  out += fmt::format(
      "<p>{} devices, mesh <b>{}</b>, zero {}, microbatches {}, recompute {}, schedule {}{}{}; {} samples a "
      "step; times of software <b>{}</b></p>\n",
      report.devices, escape(report.mesh.str()), zeroText(report), report.microbatches, escape(recomputeText(report)),
      escape(report.schedule), report.like.empty() ? "" : ", like " + escape(report.like),
      report.offload == "none" ? "" : ", offload " + escape(report.offload), report.batch, escape(report.software));
  for (const std::string &note : report.notes) out += fmt::format("<p><b>Note:</b> {}</p>\n", escape(note));
  out += fmt::format("<h2>Step time: {}</h2>\n{}", formatSeconds(predicted.stepSeconds),
                     bar({{"compute", predicted.computeSeconds, formatSeconds(predicted.computeSeconds)},
                          {"exposed communication", predicted.exposedCommunicationSeconds,
                           formatSeconds(predicted.exposedCommunicationSeconds)},
                          {"bubble", predicted.bubbleSeconds, formatSeconds(predicted.bubbleSeconds)}}));
  out +=
      fmt::format("<p>{:.3g} TFLOP/s a device, {:.1f} % of its peak; {} of communication is hidden</p>\n",
                  predicted.tflopsPerDevice, 100 * predicted.mfu, formatSeconds(predicted.hiddenCommunicationSeconds));
  out += fmt::format(
      "<h2>Memory: {} of {} a device ({})</h2>\n{}", formatBytes(memory.total()), formatBytes(report.deviceMemoryBytes),
      report.memoryIsPlanned ? fmt::format("planned; estimated {}", formatBytes(report.estimatedMemoryBytes))
                             : "estimated",
      bar({{"parameters", memory.parameters, formatBytes(memory.parameters)},
           {"gradients", memory.gradients, formatBytes(memory.gradients)},
           {"optimizer", memory.optimizer, formatBytes(memory.optimizer)},
           {"activations", memory.activations, formatBytes(memory.activations)},
           {"workspace", memory.workspace, formatBytes(memory.workspace)}}));
  if (report.offload != "none")
    out += fmt::format("<p>{} of the host's memory a device; copies take {}, {} of it exposed</p>\n",
                       formatBytes(memory.host), formatSeconds(predicted.hostSeconds),
                       formatSeconds(predicted.exposedHostSeconds));
  out += memoryChart(report);
  if (report.stages.size() > 1) out += "<h2>Stages</h2>\n" + table(stageRows(report));
  out += "<h2>Where the time goes</h2>\n" + table(timeRows(report, true)) + table(timeRows(report, false));
  out += "<h2>What better machines would bring</h2>\n" + table(sensitivityRows(report));
  out += fmt::format("<h2>Collectives of a step on one device ({}{})</h2>\n",
                     report.collectivesArePlanned ? "as planned" : "predicted",
                     report.mesh.axisSize("pp") > 1 ? ", the mean of the pipeline's ranks" : "") +
         table(collectiveAndTensorRows(report));
  out +=
      fmt::format("<h2>Alternatives</h2>\n<p>{} choices priced in {:.2f} s, optimality gap {:.2f} % of {}</p>\n<table>",
                  report.candidates, report.searchSeconds, 100 * report.gap, comparedPlans(report));
  const std::vector<Row> alternatives = alternativeRows(report);
  out += row(alternatives[0], "th");
  for (size_t i = 0; i < report.alternatives.size(); ++i)
    out += row(alternatives[i + 1], "td", report.alternatives[i].fits ? "" : " class=\"no\"");
  out += "</table>\n<h2>Parameters</h2>\n<table>" + row({"name", "dimensions", "layout", "optimizer state"}, "th");
  for (const ParameterLayout &one : report.parameters)
    out += row({one.name, fmt::format("{}", fmt::join(one.dims, " x ")), one.parameter,
                one.state.empty() ? "frozen" : one.state});
  return out + "</table>\n</body></html>\n";
}

} // namespace cleave::report
