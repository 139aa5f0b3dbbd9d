#include "compiler/report/verdict.h"
#include "compiler/report/tables.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <functional>
#include <tuple>

namespace cleave::report {
namespace {

// "dp=4, tp=8"; "one device".
std::string axesText(const dist::Mesh &mesh) {
  std::string axes;
  for (const dist::MeshAxis &axis : mesh.axes)
    if (axis.size > 1) axes += fmt::format("{}{}={}", axes.empty() ? "" : ", ", axis.name, axis.size);
  return axes.empty() ? "one device" : axes;
}

// Where the alternative loses its time against the choice.
std::string lossText(const Report &report, const planner::Alternative &row) {
  struct Part {
    double here, there;
    const char *what;
  };
  const planner::Predicted &chosen = report.predicted;
  const Part parts[] = {
      {chosen.exposedCommunicationSeconds, row.exposedCommunicationSeconds, "of communication would be exposed"},
      {chosen.bubbleSeconds, row.bubbleSeconds, "would be spent waiting in the pipeline"},
      {chosen.computeSeconds, row.computeSeconds, "would be spent computing"}};
  const Part &most = *std::ranges::max_element(parts, {}, [](const Part &part) { return part.there - part.here; });
  if (most.there <= most.here) return "";
  return fmt::format(": {} {}{}", formatSeconds(most.there), most.what,
                     most.here > 0 ? " instead of " + formatSeconds(most.here) : "");
}

std::string whyText(const Report &report, const planner::Alternative &row) {
  const bool isPreset = !row.name.starts_with("searched");
  std::string text = axesText(row.mesh) + (isPreset ? fmt::format(" ({})", row.name) : "") + ": ";
  if (!row.fits) return text + row.whyNot;
  const double times = row.stepSeconds / report.predicted.stepSeconds;
  text += formatSeconds(row.stepSeconds) + " a step";
  if (times >= 2) return text + fmt::format(", {:.2g} times as long", times) + lossText(report, row);
  if (times < 0.9995) return text + ", " + row.whyNot;
  if (times < 1.0005) return text + ", as fast; the choice is not slower";
  const bool isEqual = times <= 1 + report.predictionError;
  return text + fmt::format(", {}{:.1f} % slower", isEqual ? "equal within the error: " : "", 100 * (times - 1)) +
         lossText(report, row);
}

} // namespace

std::string verdict(const Report &report) {
  const planner::Predicted &predicted = report.predicted;
  const std::pair<const char *, double> parts[] = {{"compute", predicted.computeSeconds},
                                                   {"communication", predicted.exposedCommunicationSeconds},
                                                   {"waiting in the pipeline", predicted.bubbleSeconds}};
  const auto *most = std::ranges::max_element(parts, {}, [](const auto &part) { return part.second; });
  return fmt::format("{}{}: {} a step, most of it {} ({}){}; {} of {} a device.", axesText(report.mesh),
                     report.zero > 0 ? ", ZeRO " + zeroText(report) : "", formatSeconds(predicted.stepSeconds),
                     most->first, percent(most->second, predicted.stepSeconds),
                     predicted.bubbleSeconds > 0 && most != &parts[2]
                         ? fmt::format("; {} bubble", percent(predicted.bubbleSeconds, predicted.stepSeconds))
                         : "",
                     formatBytes(predicted.memory.total()), formatBytes(report.deviceMemoryBytes));
}

std::vector<LostFamily> whyThisSplit(const Report &report) {
  using planner::Alternative;
  struct Family {
    std::string name;
    std::function<bool(const Alternative &)> has;
    std::string preset; // says why there is none
  };
  if (report.devices == 1) return {}; // nothing else to split over
  const dist::Mesh &own = report.mesh;
  auto isDataParallel = [](const dist::Mesh &mesh) {
    return mesh.axisSize("dp") * mesh.axisSize("fsdp") == mesh.numDevices();
  };
  std::vector<Family> families;
  if (!isDataParallel(own))
    families.push_back(
        {"data parallelism alone", [&](const Alternative &row) { return isDataParallel(row.mesh); }, "zero3"});
  for (auto [name, axis, preset] : {std::tuple{"tensor parallelism", "tp", "megatron"},
                                    {"a pipeline", "pp", "gpipe"},
                                    {"a split sequence", "cp", "ring"},
                                    {"split experts", "ep", ""}})
    if (own.axisSize(axis) == 1)
      families.push_back({name, [axis = axis](const Alternative &row) { return row.mesh.axisSize(axis) > 1; }, preset});
  auto hasLowerZero = [&](const Alternative &row) {
    return row.zero < report.zero && row.mesh.str() == own.str() && row.schedule == report.schedule;
  };
  if (report.zero > 0) families.push_back({"a lower ZeRO stage", hasLowerZero, ""});
  for (auto [name, preset] : {std::pair{"Megatron", "megatron"}, {"FSDP", "fsdp"}})
    if (report.like != preset)
      families.push_back({name, [preset = preset](const Alternative &row) { return row.name == preset; }, preset});
  std::vector<LostFamily> lost;
  std::vector<const Alternative *> told;
  for (const Family &family : families) {
    const Alternative *best = nullptr, *refused = nullptr;
    for (const Alternative &row : report.alternatives) {
      if (row.mesh.axes.empty() && row.name == family.preset) refused = &row;
      if (row.mesh.axes.empty() || row.stepSeconds <= 0 || !family.has(row)) continue;
      if (!best || std::pair(!row.fits, row.stepSeconds) < std::pair(!best->fits, best->stepSeconds)) best = &row;
    }
    const bool isOfModel = family.preset != "ring" || report.tokensPerSample > 0; // an image has no sequence to split
    if (!best && isOfModel) best = refused;
    if (!best || std::ranges::find(told, best) != told.end()) continue;
    told.push_back(best);
    lost.push_back({family.name, best == refused ? best->whyNot : whyText(report, *best)});
  }
  return lost;
}

std::string gapText(const Report &report) {
  if (report.gap < 0.00005) return "no split that was looked at is faster, by this cost model";
  return fmt::format("no split that was looked at is more than {:.{}f} % faster, by this cost model", 100 * report.gap,
                     report.gap < 0.001 ? 2 : 1);
}

std::string speedText(const Report &report) {
  const double tflops = report.predicted.tflopsPerDevice;
  return fmt::format(
      "{} {}FLOP/s a device, {} of its peak", formatNumber(tflops < 1 ? 1e3 * tflops : tflops), tflops < 1 ? "G" : "T",
      report.predicted.mfu < 0.0005 ? "below 0.1 %" : fmt::format("{:.1f} %", 100 * report.predicted.mfu));
}

std::string simulatedText(const Report &report) {
  if (!report.notSimulated.empty()) return "not simulated: " + report.notSimulated;
  if (report.simulatedSeconds <= 0) return "";
  return formatSeconds(report.simulatedSeconds) + " simulated from the plan's own commands" +
         (report.simulatedShape.empty() ? "" : ", " + report.simulatedShape);
}

std::string rateText(const Report &report) {
  const double samples = double(report.batch) / report.predicted.stepSeconds;
  std::string text = samples >= 1 ? formatNumber(samples) + " samples/s" : formatSeconds(1 / samples) + " a sample";
  if (report.tokensPerSample > 0)
    text += fmt::format(", {} tokens/s", formatNumber(samples * double(report.tokensPerSample)));
  return text;
}

} // namespace cleave::report
