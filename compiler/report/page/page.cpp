// One page that people send each other: verdict, bars, pictures, and the tables of the text form; of one report, or of
// two side by side.
#include "compiler/report/diff.h"
#include "compiler/report/measured.h"
#include "compiler/report/page/charts.h"
#include "compiler/report/page/document.h"
#include "compiler/report/pricing_source.h"
#include "compiler/report/split_map.h"
#include "compiler/report/tables.h"
#include "compiler/report/verdict.h"
#include "runtime/base/names/folded_names.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <map>

namespace cleave::report {

namespace {

std::vector<Row> collectiveAndTensorRows(const Report &report) {
  std::vector<Row> rows = collectiveRows(report);
  rows[0].push_back("tensors");
  for (size_t i = 0; i < report.collectives.size(); ++i)
    rows[i + 1].push_back(movedTensors(report.collectives[i], planner::mostMovedTensors));
  return rows;
}

// Those of repeated blocks that lie alike are one row.
std::vector<Row> parameterRows(const Report &report) {
  std::map<std::string, size_t> operations; // by node
  for (size_t i = 0; i < report.nodes.size(); ++i)
    for (const std::string &name : report.nodes[i].choice.nodes) operations.emplace(name, i);
  std::map<std::vector<std::string>, size_t> places;
  std::vector<std::vector<std::string>> names;
  const bool hasGroups =
      std::ranges::any_of(report.parameters, [](const ParameterLayout &one) { return !one.group.empty(); });
  std::vector<Row> rows = {{"name", "dimensions", "layout", "optimizer state"}};
  if (hasGroups) rows[0].push_back("trains with");
  for (const ParameterLayout &one : report.parameters) {
    Row cells = {fmt::format("{}", fmt::join(one.dims, " x ")), one.parameter,
                 one.state.empty() ? "frozen" : one.state};
    if (hasGroups) cells.push_back(one.group);
    std::vector<std::string> key = cells;
    for (const std::string &reader : one.readers) {
      const auto operation = operations.find(reader);
      key.push_back(operation == operations.end() ? reader : fmt::format("{}", operation->second));
    }
    if (one.readers.empty()) key.push_back(one.name);
    const auto [place, isNew] = places.try_emplace(key, names.size());
    if (isNew) {
      names.emplace_back();
      cells.insert(cells.begin(), "");
      rows.push_back(cells);
    }
    names[place->second].push_back(one.name);
  }
  for (size_t i = 0; i < names.size(); ++i) rows[i + 1][0] = names::foldedNames(names[i]);
  return rows;
}

std::string counted(int64_t count, const char *what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string timeSection(const Report &report) {
  const std::string simulated = simulatedText(report);
  const planner::Predicted &predicted = report.predicted;
  const double other = std::max(0.0, predicted.stepSeconds - predicted.computeSeconds -
                                         predicted.exposedCommunicationSeconds - predicted.bubbleSeconds);
  return bar({{"compute", "compute", predicted.computeSeconds, formatSeconds(predicted.computeSeconds)},
              {"exposed communication", "exposed", predicted.exposedCommunicationSeconds,
               formatSeconds(predicted.exposedCommunicationSeconds)},
              {"bubble", "bubble", predicted.bubbleSeconds, formatSeconds(predicted.bubbleSeconds)},
              {"other", "other", other > 1e-9 ? other : 0, formatSeconds(other)}}) +
         fmt::format(
             "<p>{}; {}{}</p>\n", rateText(report), speedText(report),
             predicted.hiddenCommunicationSeconds > 0
                 ? fmt::format("; {} of communication is hidden", formatSeconds(predicted.hiddenCommunicationSeconds))
                 : "") +
         (simulated.empty() ? "" : "<p>" + escape(simulated) + "</p>\n");
}

double peakOf(const RankMemory &rank) {
  double most = 0;
  for (const planner::MemoryPoint &point : rank.overTime) most = std::max(most, point.memory.total());
  return most;
}

// The largest tensors of each kind that the plan says are there when the device is fullest.
std::string heldTable(const RankMemory &rank, const std::string &where) {
  if (rank.held.empty()) return "";
  std::vector<Row> rows = {{"kind", "copies", "bytes", "tensor, or the command that makes it"}};
  for (const HeldTensor &one : rank.held)
    rows.push_back({one.kind, fmt::format("{}", one.copies), formatBytes(one.bytes), one.name});
  return table(rank.fullestAt.empty()
                   ? fmt::format("The largest tensors of each kind that {} holds", where)
                   : fmt::format("The largest tensors of each kind when {} is fullest, at {} ({}); kept: for the "
                                 "backward pass",
                                 where, rank.fullestAt, rank.phase),
               rows);
}

// Each pipeline rank's memory, that of the fullest unfolded. `of`: whose, of two plans side by side.
std::string memoryOfRanks(const Report &report, const std::string &of) {
  const std::vector<RankMemory> &ranks = report.rankMemory;
  if (ranks.empty()) return "";
  std::string out;
  if (std::ranges::all_of(ranks, [](const RankMemory &rank) { return rank.held.empty(); }))
    out = "<p class=\"soft\">A compiled plan also names the tensors of the peak; this is an estimate.</p>\n";
  if (ranks.size() == 1)
    return memoryChart(report, ranks[0].overTime, true) + out + heldTable(ranks[0], "a device" + of);
  const size_t fullest = size_t(std::ranges::max_element(ranks, {}, peakOf) - ranks.begin());
  for (size_t i = 0; i < ranks.size(); ++i)
    out +=
        fmt::format("<details class=\"folded\"{}><summary>Pipeline rank {}: {} at its peak</summary>\n{}{}</details>\n",
                    i == fullest ? " open" : "", i, formatBytes(peakOf(ranks[i])),
                    memoryChart(report, ranks[i].overTime, i == fullest),
                    heldTable(ranks[i], fmt::format("a device of rank {}{}", i, of)));
  return out;
}

std::string memorySection(const Report &report, const std::string &of) {
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
  return out + memoryOfRanks(report, of);
}

std::string sentence(std::string text) {
  if (!text.empty()) text[0] = char(std::toupper(uint8_t(text[0])));
  return text;
}

// The best of each family that lost.
std::string whySection(const Report &report) {
  std::string rows;
  for (const LostFamily &one : whyThisSplit(report))
    rows += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape(sentence(one.family)), escape(one.why));
  return rows.empty() ? "" : fmt::format("<dl class=\"why\">\n{}</dl>\n", rows);
}

std::string alternativesSection(const Report &report) {
  std::vector<size_t> priced; // among all alternatives
  for (size_t i = 0; i < report.alternatives.size(); ++i)
    if (!report.alternatives[i].mesh.axes.empty()) priced.push_back(i);
  std::string out = fmt::format("<p>{} choice{} priced in {:.2f} s; optimality gap {:.2f} % of {}</p>\n",
                                report.candidates, report.candidates == 1 ? "" : "s", report.searchSeconds,
                                100 * report.gap, escape(comparedPlans(report))) +
                    alternativesChart(report) +
                    table("Presets and the best splits of other meshes", alternativeRows(report), [&](size_t row) {
                      return fmt::format(" id=\"alternative-{}\"{}", priced[row],
                                         report.alternatives[priced[row]].fits ? "" : " class=\"no\"");
                    });
  for (const std::string &one : unbuildable(report)) out += fmt::format("<p class=\"soft\">{}</p>\n", escape(one));
  return out;
}

std::string folded(const std::string &title, const std::string &text) {
  return fmt::format("<details class=\"folded\"><summary>{}</summary><pre>{}</pre></details>\n", escape(title),
                     escape(text));
}

std::string linkText(const char *where, const planner::Link &link) {
  const bool isShared = link.topology == planner::Link::Topology::Memory;
  return fmt::format("; {} {}{}/s, {} a message", where, isShared ? "in shared memory " : "",
                     formatBytes(link.bandwidth), formatSeconds(link.latency));
}

// "2048 nodes with 8 devices each; h100-80g: 80 GiB at 3.05 TiB/s, 989 TFLOP/s in bf16; between devices of a node ..."
std::string clusterFigures(const planner::Cluster &cluster) {
  const planner::Device &device = cluster.device;
  std::string out = fmt::format("{} with {}; {}: {} at {}/s", counted(cluster.nodes, "node"),
                                counted(cluster.devicesPerNode, "device") + (cluster.nodes > 1 ? " each" : ""),
                                device.kind.empty() ? "a device" : device.kind, formatBytes(device.memoryBytes),
                                formatBytes(device.memoryBandwidth));
  for (const auto &[precision, flops] : device.flops)
    out += fmt::format(", {} TFLOP/s in {}", formatNumber(flops / 1e12), precision);
  if (cluster.devicesPerNode > 1) out += linkText("between devices of a node", cluster.node);
  if (cluster.nodes > 1) out += linkText("between nodes", cluster.network);
  for (const planner::NetworkLevel &level : cluster.levels)
    out += fmt::format("; beyond {} {}/s", counted(level.nodes, "node"), formatBytes(level.bandwidth));
  if (cluster.host.bandwidth > 0)
    out += fmt::format("; to the host {}/s for {}", formatBytes(cluster.host.bandwidth),
                       counted(cluster.hostSharedBy, "device"));
  return out + ".";
}

// The machines and the recipe that the report was made from, so far as it tells them.
std::string originOf(const Report &report) {
  std::string out;
  if (Result<PricingSource> source = unpackSource(report.source); !report.source.empty() && source)
    out += fmt::format("<p>Cluster: {}</p>\n", escape(clusterFigures(source->cluster))) +
           folded("All figures of the cluster", source->cluster.yaml());
  if (!report.recipe.empty()) out += folded("The recipe, with every default", report.recipe);
  return out;
}

// The lines below the title: the verdict, the split, the flags that give it again, and what it was made from.
std::string headerOf(const Report &report) {
  std::string out = fmt::format(
      R"(<p class="verdict">{verdict} {gap}.</p>
<p>{devices} devices, mesh <b>{mesh}</b>, zero {zero}, microbatches {microbatches}, recompute {recompute}, schedule {schedule}{like}{offload}{chunks}; {batch} samples a step; times of software <b>{software}</b></p>
<p class="soft">Flags that give this split again: <code class="copy">{flags}</code></p>
)",
      fmt::arg("verdict", escape(verdict(report))), fmt::arg("gap", sentence(gapText(report))),
      fmt::arg("devices", report.devices), fmt::arg("mesh", escape(report.mesh.str())),
      fmt::arg("zero", zeroText(report)), fmt::arg("microbatches", report.microbatches),
      fmt::arg("recompute", escape(recomputeText(report))), fmt::arg("schedule", escape(report.schedule)),
      fmt::arg("like", report.like.empty() ? "" : ", like " + escape(report.like)),
      fmt::arg("offload", report.offload == "none" ? "" : ", offload " + escape(report.offload)),
      fmt::arg("chunks", report.chunks == 1 ? "" : fmt::format(", loss in {} chunks", report.chunks)),
      fmt::arg("batch", report.batch), fmt::arg("software", escape(report.software)),
      fmt::arg("flags", escape(flagsText(requestOf(report)))));
  if (!report.command.empty())
    out += fmt::format("<p class=\"soft\">Made by <code class=\"copy\">{}</code> with version {}</p>\n",
                       escape(report.command), escape(report.version));
  out += originOf(report);
  if (!report.tried.empty()) out += fmt::format("<p><b>Refined:</b> {}</p>\n", escape(triedText(report)));
  if (report.proof) out += fmt::format("<p><b>Proof:</b> {}</p>\n", escape(proofText(*report.proof)));
  for (const std::string &note : report.notes)
    out += fmt::format("<details class=\"folded\"><summary>Note: {0}</summary></details>\n", escape(note));
  return out;
}

std::string measuredSection(const Measured &measured) {
  return fmt::format("<p>{} Steps {} to {}.</p>\n", escape(verdict(measured)), measured.firstStep, measured.lastStep) +
         table("A step, measured and predicted", sumRows(measured)) +
         (measured.layers.empty() ? "" : table("By layer, what is most off first", layerRows(measured))) +
         (measured.collectives.empty()
              ? ""
              : table("By collective, with the wait for other devices", collectiveRows(measured)));
}

std::string differenceTable(const std::string &caption, const std::string &head,
                            const std::vector<Difference> &differences) {
  if (differences.empty()) return fmt::format("<p>{}: alike in both</p>\n", escape(caption));
  std::vector<Row> rows = {{head, "left", "right", "change"}};
  for (const Difference &row : differences)
    rows.push_back({row.what, row.left.empty() ? "-" : row.left, row.right.empty() ? "-" : row.right, row.change});
  return table(caption, rows);
}

std::string smallerZeros(const Differences &found) {
  return found.smallerZeroChanges == 0
             ? ""
             : fmt::format("<p>and zero of {} smaller kinds of parameters</p>\n", found.smallerZeroChanges);
}

std::string singleTable(const std::vector<SingleChange> &singles) {
  std::vector<Row> rows = {{"change", "step time", "memory", "why not"}};
  for (const SingleChange &row : singles) {
    const bool isPriced = row.stepSeconds > 0;
    rows.push_back({row.what, isPriced ? formatSeconds(row.stepSeconds) : "-",
                    isPriced ? formatBytes(row.memoryBytes) : "-", row.whyNot});
  }
  return table("In the left one's place, all else as it is there; shardings chosen again", rows);
}

} // namespace

std::string renderHtml(const Report &report, const Measured *measured) {
  const planner::MemoryBreakdown &memory = report.predicted.memory;
  Document page(fmt::format("{} on {}", report.model, report.cluster));
  page.header(headerOf(report));
  if (const std::string why = whySection(report); !why.empty()) page.section("why", "Why this split", why);
  page.section("time", "Step time: " + formatSeconds(report.predicted.stepSeconds), timeSection(report));
  page.section("alternatives", "Alternatives", alternativesSection(report));
  if (measured) page.section("measured", "Measured beside predicted", measuredSection(*measured));
  page.section("memory",
               fmt::format("Memory: {} of {} a device, {} in reserve ({})", formatBytes(memory.total()),
                           formatBytes(report.deviceMemoryBytes), formatBytes(report.reservedMemoryBytes),
                           report.memoryIsPlanned ? "planned; estimated " + formatBytes(report.estimatedMemoryBytes)
                                                  : "estimated"),
               memorySection(report, ""));
  if (const std::string picture = timeline(report); !picture.empty()) page.section("timeline", "Timeline", picture);
  if (report.stages.size() > 1)
    page.section("stages", "Pipeline", table("Stages; seconds of a step", stageRows(report)));
  page.section("parts", "Where the time goes",
               table("By layer", timeRows(report, true)) +
                   table("By kind of operation; Contract: matrix products", timeRows(report, false)));
  if (const std::vector<Row> rows = sensitivityRows(report); !rows.empty())
    page.section("sensitivity", "What better machines would bring",
                 table("This split, priced again; with more memory another may be better", rows));
  if (const std::string map = mapOfSplit(report); !map.empty()) page.section("map", "Map of the split", map);
  page.section(
      "collectives", "Collectives",
      table(fmt::format("Of a step on one device ({}{})", report.collectivesArePlanned ? "as planned" : "predicted",
                        report.mesh.axisSize(dist::pipelineAxis) > 1 ? ", the mean of the pipeline's ranks" : ""),
            collectiveAndTensorRows(report)) +
          (report.commands.empty() ? "" : table("Commands of a step on one device (as planned)", commandRows(report))));
  page.section(
      "parameters", "Parameters",
      table("For each dimension the mesh axes that split it, {} for none; 0..11 are repetitions that lie alike",
            parameterRows(report)));
  return page.take();
}

std::string renderHtmlDiff(const ReportSide &left, const ReportSide &right) {
  const Differences found = differences(left.report, right.report);
  const ReportSide *sides[] = {&left, &right};
  Document page(fmt::format("{} beside {}", left.name, right.name));
  const double a = left.report.predicted.stepSeconds, b = right.report.predicted.stepSeconds;
  page.header(fmt::format(
      "<p class=\"verdict\">{}</p>\n",
      escape(found.isSameSplit() ? "The split is the same."
             : a == b ? "Both steps take as long."
                      : fmt::format("{} is faster: {} a step instead of {} ({:.1f} % less).",
                                    a < b ? left.name : right.name, formatSeconds(std::min(a, b)),
                                    formatSeconds(std::max(a, b)), 100 * (1 - std::min(a, b) / std::max(a, b))))));
  auto beside = [&](const std::function<std::string(const Report &)> &content) {
    std::string columns;
    for (const ReportSide *side : sides)
      columns += fmt::format("<div><h3>{}</h3>\n{}</div>", escape(side->name), content(side->report));
    return "<div class=\"sides\">" + columns + "</div>\n";
  };
  page.section("splits", "The splits", beside(headerOf));
  page.section("changed", "What differs",
               differenceTable("Split", "setting", found.split) + smallerZeros(found) +
                   differenceTable("Worth", "figure", found.worth));
  if (!found.singles.empty()) page.section("singles", "Each change by itself", singleTable(found.singles));
  page.section("time", "Step time", beside(timeSection));
  page.section("memory", "Memory", beside([&](const Report &report) {
                 return memorySection(report, " of " + (&report == &left.report ? left : right).name);
               }));
  page.section("timelines", "Timelines", beside(timeline));
  page.section("collectives", "Collectives",
               differenceTable("Bytes of a step on one device", "collective", found.collectives));
  page.section("parameters", "Parameters", differenceTable("Those with another layout", "parameter", found.parameters));
  return page.take();
}

} // namespace cleave::report
