// One page that people send each other: verdict, bars, pictures, and the tables of the text form. Nothing is loaded
// from elsewhere; the script only sorts, filters and copies.
#include "compiler/report/page/charts.h"
#include "compiler/report/tables.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>

namespace cleave::report {

namespace {

#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wc23-extensions"
constexpr char style[] = {
#embed "page.css"
    , 0};
constexpr char script[] = {
#embed "page.js"
    , 0};
#pragma clang diagnostic pop

// Does the column hold numbers, with or without a unit? They align right.
bool isNumber(const std::vector<Row> &rows, size_t column) {
  bool any = false;
  for (size_t i = 1; i < rows.size(); ++i) {
    const std::string &cell = column < rows[i].size() ? rows[i][column] : "";
    if (cell.empty() || cell == "-") continue;
    if (!std::isdigit(uint8_t(cell[0])) || cell.find_first_of(",[=(") != std::string::npos) return false;
    any = true;
  }
  return any;
}

// `attributes` of a row by its number from 0.
std::string table(const std::string &caption, const std::vector<Row> &rows,
                  const std::function<std::string(size_t)> &attributes = {}) {
  std::vector<const char *> classes;
  for (size_t i = 0; i < rows[0].size(); ++i) classes.push_back(isNumber(rows, i) ? " class=\"number\"" : "");
  std::string out =
      fmt::format("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table><caption>"
                  "{0}</caption><thead><tr>",
                  escape(caption));
  for (size_t i = 0; i < rows[0].size(); ++i)
    out += fmt::format("<th scope=\"col\"{}>{}</th>", classes[i], escape(rows[0][i]));
  out += "</tr></thead>\n<tbody>";
  for (size_t r = 1; r < rows.size(); ++r) {
    out += fmt::format("<tr{}>", attributes ? attributes(r - 1) : "");
    for (size_t i = 0; i < rows[r].size(); ++i)
      out += fmt::format("<td{}>{}</td>", i < classes.size() ? classes[i] : "", escape(rows[r][i]));
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::vector<Row> collectiveAndTensorRows(const Report &report) {
  std::vector<Row> rows = collectiveRows(report);
  rows[0].push_back("tensors");
  for (size_t i = 0; i < report.collectives.size(); ++i)
    rows[i + 1].push_back(movedTensors(report.collectives[i], planner::mostMovedTensors));
  return rows;
}

std::vector<Row> parameterRows(const Report &report) {
  std::vector<Row> rows = {{"name", "dimensions", "layout", "optimizer state"}};
  for (const ParameterLayout &one : report.parameters)
    rows.push_back({one.name, fmt::format("{}", fmt::join(one.dims, " x ")), one.parameter,
                    one.state.empty() ? "frozen" : one.state});
  return rows;
}

// "dp=4, tp=8: 1.20 s a step, most of it compute (72 %); 3 % bubble; within 2.0 % of the optimum; 60 of 80 GiB."
std::string verdict(const Report &report) {
  const planner::Predicted &predicted = report.predicted;
  const std::pair<const char *, double> parts[] = {{"compute", predicted.computeSeconds},
                                                   {"communication", predicted.exposedCommunicationSeconds},
                                                   {"waiting in the pipeline", predicted.bubbleSeconds}};
  const auto *most = std::ranges::max_element(parts, {}, [](const auto &part) { return part.second; });
  std::string axes;
  for (const dist::MeshAxis &axis : report.mesh.axes)
    if (axis.size > 1) axes += fmt::format("{}{}={}", axes.empty() ? "" : ", ", axis.name, axis.size);
  return fmt::format("{}{}: {} a step, most of it {} ({}){}; within {:.1f} % of the optimum; {} of {} a device.",
                     axes.empty() ? "one device" : axes, report.zero > 0 ? ", ZeRO " + zeroText(report) : "",
                     formatSeconds(predicted.stepSeconds), most->first, percent(most->second, predicted.stepSeconds),
                     predicted.bubbleSeconds > 0 && most != &parts[2]
                         ? fmt::format("; {} bubble", percent(predicted.bubbleSeconds, predicted.stepSeconds))
                         : "",
                     100 * report.gap, formatBytes(predicted.memory.total()), formatBytes(report.deviceMemoryBytes));
}

// The flags that ask for this split.
std::string flags(const Report &report) {
  std::string out =
      fmt::format("--mesh {} --zero {} --microbatches {}", report.mesh.str(), report.zero, report.microbatches);
  if (report.schedule != "none") out += " --schedule " + report.schedule;
  if (report.recompute != "none") out += " --recompute " + report.recompute;
  if (report.offload != "none") out += " --offload " + report.offload;
  return out;
}

class Page {
public:
  void section(const std::string &id, const std::string &title, const std::string &content) {
    links += fmt::format("<li><a href=\"#{}\">{}</a></li>", id, escape(title));
    sections += fmt::format("<section aria-labelledby=\"{0}\"><h2 id=\"{0}\">{1}</h2>\n{2}</section>\n", id,
                            escape(title), content);
  }
  std::string links, sections;
};

std::string timeSection(const Report &report) {
  const planner::Predicted &predicted = report.predicted;
  const double other = std::max(0.0, predicted.stepSeconds - predicted.computeSeconds -
                                         predicted.exposedCommunicationSeconds - predicted.bubbleSeconds);
  return bar({{"compute", "compute", predicted.computeSeconds, formatSeconds(predicted.computeSeconds)},
              {"exposed communication", "exposed", predicted.exposedCommunicationSeconds,
               formatSeconds(predicted.exposedCommunicationSeconds)},
              {"bubble", "bubble", predicted.bubbleSeconds, formatSeconds(predicted.bubbleSeconds)},
              {"other", "other", other > 1e-9 ? other : 0, formatSeconds(other)}}) +
         fmt::format("<p>{:.3g} TFLOP/s a device, {:.1f} % of its peak; {} of communication is hidden</p>\n",
                     predicted.tflopsPerDevice, 100 * predicted.mfu,
                     formatSeconds(predicted.hiddenCommunicationSeconds));
}

std::string memorySection(const Report &report) {
  const planner::MemoryBreakdown &memory = report.predicted.memory;
  std::string out = bar({{"parameters", "parameters", memory.parameters, formatBytes(memory.parameters)},
                         {"gradients", "gradients", memory.gradients, formatBytes(memory.gradients)},
                         {"optimizer", "optimizer", memory.optimizer, formatBytes(memory.optimizer)},
                         {"activations", "activations", memory.activations, formatBytes(memory.activations)},
                         {"workspace", "workspace", memory.workspace, formatBytes(memory.workspace)}});
  if (report.offload != "none")
    out += fmt::format("<p>{} of the host's memory a device; copies take {}, {} of it exposed</p>\n",
                       formatBytes(memory.host), formatSeconds(report.predicted.hostSeconds),
                       formatSeconds(report.predicted.exposedHostSeconds));
  return out + memoryChart(report);
}

} // namespace

std::string renderHtml(const Report &report) {
  const std::string title = escape(fmt::format("{} on {}", report.model, report.cluster));
  const planner::MemoryBreakdown &memory = report.predicted.memory;
  Page page;
  page.section("time", "Step time: " + formatSeconds(report.predicted.stepSeconds), timeSection(report));
  page.section("memory",
               fmt::format("Memory: {} of {} a device ({})", formatBytes(memory.total()),
                           formatBytes(report.deviceMemoryBytes),
                           report.memoryIsPlanned ? "planned; estimated " + formatBytes(report.estimatedMemoryBytes)
                                                  : "estimated"),
               memorySection(report));
  if (report.stages.size() > 1)
    page.section("stages", "Pipeline", timeline(report) + table("Stages; seconds of a step", stageRows(report)));
  page.section("parts", "Where the time goes",
               table("By layer", timeRows(report, true)) +
                   table("By kind of operation; Contract: matrix products", timeRows(report, false)));
  page.section("sensitivity", "What better machines would bring",
               table("This split, priced again; with more memory another may be better", sensitivityRows(report)));
  page.section(
      "collectives", "Collectives",
      table(fmt::format("Of a step on one device ({}{})", report.collectivesArePlanned ? "as planned" : "predicted",
                        report.mesh.axisSize("pp") > 1 ? ", the mean of the pipeline's ranks" : ""),
            collectiveAndTensorRows(report)));
  page.section("alternatives", "Alternatives",
               fmt::format("<p>{} choices priced in {:.2f} s, optimality gap {:.2f} % of {}</p>\n", report.candidates,
                           report.searchSeconds, 100 * report.gap, escape(comparedPlans(report))) +
                   alternativesChart(report) +
                   table("Presets and the best splits of other meshes", alternativeRows(report), [&](size_t row) {
                     return fmt::format(" id=\"alternative-{}\"{}", row,
                                        report.alternatives[row].fits ? "" : " class=\"no\"");
                   }));
  page.section("parameters", "Parameters",
               table("For each dimension the mesh axes that split it, {} for none", parameterRows(report)));
  std::string notes;
  for (const std::string &note : report.notes) notes += fmt::format("<p><b>Note:</b> {}</p>\n", escape(note));
  return fmt::format(R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<p class="verdict">{verdict}</p>
<p>{devices} devices, mesh <b>{mesh}</b>, zero {zero}, microbatches {microbatches}, recompute {recompute}, schedule {schedule}{like}{offload}; {batch} samples a step; times of software <b>{software}</b></p>
<p class="soft">Flags of this split: <code class="copy">{flags}</code></p>
{notes}</header>
<nav aria-label="Sections"><ul>{links}</ul></nav>
<main>
{sections}</main>
<script>
{script}</script>
</body>
</html>
)",
                     fmt::arg("title", title), fmt::arg("style", style), fmt::arg("verdict", escape(verdict(report))),
                     fmt::arg("devices", report.devices), fmt::arg("mesh", escape(report.mesh.str())),
                     fmt::arg("zero", zeroText(report)), fmt::arg("microbatches", report.microbatches),
                     fmt::arg("recompute", escape(recomputeText(report))),
                     fmt::arg("schedule", escape(report.schedule)),
                     fmt::arg("like", report.like.empty() ? "" : ", like " + escape(report.like)),
                     fmt::arg("offload", report.offload == "none" ? "" : ", offload " + escape(report.offload)),
                     fmt::arg("batch", report.batch), fmt::arg("software", escape(report.software)),
                     fmt::arg("flags", escape(flags(report))), fmt::arg("notes", notes), fmt::arg("links", page.links),
                     fmt::arg("sections", page.sections), fmt::arg("script", script));
}

} // namespace cleave::report
