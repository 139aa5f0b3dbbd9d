#include "compiler/report/split_request.h"
#include "compiler/report/report.h"
#include "compiler/report/tables.h"
#include "runtime/base/names/shell_word.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace cleave::report {
namespace {

using planner::SplitFlags;

// The names of the flags, in the order in which they are written.
constexpr std::pair<const char *, std::string SplitFlags::*> texts[] = {{"like", &SplitFlags::like},
                                                                        {"mesh", &SplitFlags::mesh},
                                                                        {"mesh-order", &SplitFlags::meshOrder},
                                                                        {"zero", &SplitFlags::zero},
                                                                        {"microbatches", &SplitFlags::microbatches},
                                                                        {"schedule", &SplitFlags::schedule},
                                                                        {"balance", &SplitFlags::balance},
                                                                        {"recompute", &SplitFlags::recompute},
                                                                        {"offload", &SplitFlags::offload},
                                                                        {"chunk", &SplitFlags::chunk}};
constexpr std::pair<const char *, std::vector<std::string> SplitFlags::*> repeated[] = {
    {"split-at", &SplitFlags::splitAt}, {"pin", &SplitFlags::pins}};
constexpr std::pair<const char *, bool SplitFlags::*> switches[] = {
    {"sequence-parallel", &SplitFlags::sequenceParallel}, {"allow-repeated-work", &SplitFlags::allowRepeatedWork}};
constexpr const char *searchMoves = "search-moves", *noAnnotations = "no-annotations";

// "mesh-order" as "mesh_order".
std::string keyOf(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

// The axes of a grid are asked for as tp.
std::string meshText(const dist::Mesh &mesh) {
  dist::Mesh asked;
  int64_t tp = 1;
  for (const dist::MeshAxis &axis : mesh.axes)
    if (planner::setOfNames({axis.name}) &
        planner::setOf({planner::Axis::Depth, planner::Axis::Row, planner::Axis::Tensor}))
      tp *= axis.size;
    else
      asked.axes.push_back(axis);
  asked.axes.push_back({"tp", tp});
  return asked.str();
}

// Its axes of several devices from the outermost; "" where there is no order.
std::string orderText(const dist::Mesh &mesh) {
  std::vector<std::string> names;
  for (const dist::MeshAxis &axis : mesh.axes) {
    if (axis.size == 1) continue;
    const std::string name = axis.name.starts_with("tp") ? "tp" : axis.name;
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  return names.size() > 1 ? fmt::format("{}", fmt::join(names, ",")) : "";
}

} // namespace

SplitRequest requestOf(const Report &report) {
  SplitRequest request = report.given;
  SplitFlags &flags = request.split;
  flags.like = report.like;
  flags.mesh = meshText(report.mesh);
  flags.meshOrder = orderText(report.mesh);
  if (report.lowerZero < 0) flags.zero = fmt::format("{}", report.zero); // else the search mixes stages again
  flags.microbatches = fmt::format("{}", report.microbatches);
  if (report.schedule != "none") flags.schedule = report.schedule;
  const bool isMixed = recomputeText(report) != report.recompute; // the search mixes it again where it is not given
  if (flags.recompute.empty() && !isMixed && report.recompute != "none") flags.recompute = report.recompute;
  if (report.offload != "none") flags.offload = report.offload;
  return request;
}

std::string flagsText(const SplitRequest &request) {
  std::string out;
  auto add = [&](const char *name, const std::string &value) {
    out += fmt::format("{}--{}{}{}", out.empty() ? "" : " ", name, value.empty() ? "" : " ",
                       value.empty() ? "" : names::shellWord(value));
  };
  for (auto [name, flag] : texts)
    if (!(request.split.*flag).empty()) add(name, request.split.*flag);
  for (auto [name, flag] : repeated)
    for (const std::string &value : request.split.*flag) add(name, value);
  for (auto [name, flag] : switches)
    if (request.split.*flag) add(name, "");
  if (!request.searchMoves.empty()) add(searchMoves, fmt::format("{}", fmt::join(request.searchMoves, ",")));
  if (!request.annotations) add(noAnnotations, "");
  return out;
}

nlohmann::ordered_json splitRequestJson(const SplitRequest &request) {
  auto json = nlohmann::ordered_json::object();
  for (auto [name, flag] : texts)
    if (!(request.split.*flag).empty()) json[keyOf(name)] = request.split.*flag;
  for (auto [name, flag] : repeated)
    if (!(request.split.*flag).empty()) json[keyOf(name)] = request.split.*flag;
  for (auto [name, flag] : switches)
    if (request.split.*flag) json[keyOf(name)] = true;
  if (!request.searchMoves.empty()) json[keyOf(searchMoves)] = request.searchMoves;
  if (!request.annotations) json[keyOf(noAnnotations)] = true;
  return json;
}

SplitRequest splitRequestOf(const nlohmann::ordered_json &json) {
  SplitRequest request;
  for (auto [name, flag] : texts) request.split.*flag = json.value(keyOf(name), "");
  for (auto [name, flag] : repeated) request.split.*flag = json.value(keyOf(name), std::vector<std::string>());
  for (auto [name, flag] : switches) request.split.*flag = json.value(keyOf(name), false);
  request.searchMoves = json.value(keyOf(searchMoves), std::vector<std::string>());
  request.annotations = !json.value(keyOf(noAnnotations), false);
  return request;
}

} // namespace cleave::report
