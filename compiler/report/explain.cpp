// `--explain NODE`.
#include "compiler/report/pricing_source.h"
#include "compiler/report/report.h"
#include "runtime/base/names/glob.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <ranges>
#include <set>

namespace cleave::report {
namespace {

// "b=dp n=tp": the factors that are split, by their letters in the rule.
std::string splitText(const planner::CandidateCost &candidate) {
  std::string text;
  for (size_t factor = 0; factor < candidate.split.size(); ++factor) {
    if (candidate.split[factor].empty()) continue;
    std::string letter = factor < 26 ? std::string(1, char('a' + factor)) : fmt::format("f{}", factor);
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", letter, fmt::join(candidate.split[factor], "+"));
  }
  if (!candidate.passesPartial.empty())
    text += fmt::format("{}partial sums over {} pass through", text.empty() ? "" : ", ",
                        fmt::join(candidate.passesPartial, ","));
  return text.empty() ? "whole on every device" : text;
}

// "its result, for layers.0/gelu and 1 more", "what tokens makes", "layers.0.up.weight".
std::string sharedText(const planner::Neighbour &one) {
  if (one.relation == "operand") return "what " + one.tensor + " makes";
  if (one.relation != "result") return one.tensor;
  const std::string more = one.more > 0 ? fmt::format(" and {} more", one.more) : "";
  return one.reader.empty() ? "its result" : fmt::format("its result, for {}{}", one.reader, more);
}

// The saving or cost of the chosen candidate for each of its neighbours, against another one.
std::string neighbours(const planner::CandidateCost &chosen, const planner::CandidateCost &other) {
  std::vector<planner::Neighbour> all;
  auto find = [](const std::vector<planner::Neighbour> &among, const planner::Neighbour &one) {
    return std::ranges::find_if(among, [&](const planner::Neighbour &other) { return other.isSame(one); });
  };
  for (const planner::CandidateCost *candidate : {&chosen, &other})
    for (const planner::Neighbour &one : candidate->neighbours)
      if (find(all, one) == all.end()) all.push_back(one);
  std::ranges::sort(all, {}, sharedText);
  auto of = [&](const planner::CandidateCost &candidate, const planner::Neighbour &one) {
    auto found = find(candidate.neighbours, one);
    return found == candidate.neighbours.end() ? 0.0 : found->seconds;
  };
  std::string out;
  for (const planner::Neighbour &one : all) {
    const double here = of(chosen, one), there = of(other, one);
    out += fmt::format("    {}: {} instead of {}, ", sharedText(one), formatSeconds(here), formatSeconds(there));
    out += here == there
               ? "as much\n"
               : fmt::format("{} {}\n", here < there ? "saves" : "costs", formatSeconds(std::abs(here - there)));
  }
  return out.empty() ? out : "  the communication with each neighbour, against the next best\n" + out;
}

} // namespace

std::string explained(const planner::NodeExplanation &found, const std::string &name) {
  std::string out = fmt::format("{} ({})\n  rule    {}\n", name, found.op, found.rule);
  if (found.nodes.size() > 1)
    out += fmt::format("  decided together with {} repetitions in other blocks; the costs below are those of all {}\n",
                       found.nodes.size() - 1, found.nodes.size());
  std::vector<const planner::CandidateCost *> order;
  const planner::CandidateCost *chosen = nullptr;
  for (const planner::CandidateCost &candidate : found.candidates) {
    order.push_back(&candidate);
    if (candidate.chosen) chosen = &candidate;
  }
  if (!chosen) return out + "  no candidate of it is the chosen one\n";
  std::partition(order.begin(), order.end(), [](const auto *candidate) { return candidate->chosen; });
  std::sort(order.begin() + 1, order.end(), [](const auto *a, const auto *b) { return a->seconds() < b->seconds(); });
  out += "  a step, everything else as chosen; communication and bytes are those of the tensors around the node\n";
  size_t width = 8;
  for (const auto *candidate : order) width = std::max(width, splitText(*candidate).size());
  out += fmt::format("    {:<{}}  {:>10} {:>14} {:>10}\n", "split", width, "compute", "communication", "kept bytes");
  for (const auto *candidate : order) {
    double extra = candidate->seconds() - chosen->seconds(), bytes = candidate->memoryBytes - chosen->memoryBytes;
    std::string verdict = "chosen";
    if (!candidate->chosen) {
      verdict = extra >= 0 ? formatSeconds(extra) + " slower" : formatSeconds(-extra) + " faster here";
      if (std::abs(bytes) > 1)
        verdict += fmt::format(", {} {}", formatBytes(std::abs(bytes)), bytes > 0 ? "more" : "less");
      if (extra < 0)
        verdict += bytes > 0 ? ": does not fit or moves cost elsewhere" : ": hidden behind compute, or no gain in all";
    }
    out += fmt::format("    {:<{}}  {:>10} {:>14} {:>10}  {}\n", splitText(*candidate), width,
                       formatSeconds(candidate->computeSeconds), formatSeconds(candidate->communicationSeconds),
                       formatBytes(candidate->memoryBytes), verdict);
  }
  if (order.size() > 1) {
    double saved = order[1]->seconds() - chosen->seconds();
    if (saved > 0) out += fmt::format("  the choice saves {} a step against the next best\n", formatSeconds(saved));
    out += neighbours(*chosen, *order[1]);
  }
  return out;
}

namespace {

// How a parameter lies, and what reads it.
std::string parameterLine(const ParameterLayout &row) {
  std::string out = fmt::format("{} [{}] (parameter)\n  layout  {}", row.name, fmt::join(row.dims, ","), row.parameter);
  out += row.state.empty() ? std::string(", frozen")
                           : fmt::format(", gradient {}, state {}, ZeRO stage {}", row.gradient, row.state, row.zero);
  if (!row.group.empty()) out += "\n  trains with " + row.group;
  constexpr size_t shown = 8;
  out += fmt::format("\n  read by {}", row.readers.empty() ? "nothing" : "");
  out += fmt::format("{}", fmt::join(row.readers | std::views::take(shown), ", "));
  if (row.readers.size() > shown) out += fmt::format(" and {} more", row.readers.size() - shown);
  return out + "\n";
}

// Names like the one that no node and no parameter has.
Status unknownName(const Report &report, const std::string &name) {
  std::vector<std::string> all, similar;
  for (const ReportedNode &node : report.nodes)
    all.insert(all.end(), node.choice.nodes.begin(), node.choice.nodes.end());
  const size_t nodes = all.size();
  for (const ParameterLayout &row : report.parameters) all.push_back(row.name);
  for (const std::string &one : all)
    if (similar.size() < 8 && one.find(name) != std::string::npos) similar.push_back(one);
  std::string known =
      similar.empty() ? names::suggestion(name, all) : fmt::format("; there are {}", fmt::join(similar, ", "));
  if (known.empty())
    known = fmt::format("; there are {}, for example (constants are folded and have no node)",
                        fmt::join(all | std::views::take(std::min(nodes, size_t(3))), ", "));
  return inputError(fmt::format("no node and no parameter is called '{}'{}", name, known));
}

} // namespace

Result<std::string> explain(const Report &report, const std::string &name) {
  constexpr size_t shown = 16;
  // With the first name that fits.
  auto nodesThat = [&](auto fits) {
    std::vector<std::pair<const planner::NodeExplanation *, std::string>> found;
    for (const ReportedNode &node : report.nodes)
      if (auto first = std::ranges::find_if(node.choice.nodes, fits); first != node.choice.nodes.end())
        found.emplace_back(&node.choice, *first);
    return found;
  };
  const planner::DisplayNames display = displayNames(report.source);
  // By the model file's name, or as reports name it: "h.0.attn.c_attn", "h.0..11.attn.c_attn".
  auto isCalled = [&](const std::string &one) {
    return names::matchGlob(name, one) || names::matchGlob(name, display.of(one)) || display.moduleOf(one) == name;
  };
  auto found = nodesThat(isCalled);
  for (const ReportedNode &node : report.nodes)
    if (found.empty() && display.of(node.choice.nodes[0], int64_t(node.choice.nodes.size())) == name)
      found.emplace_back(&node.choice, node.choice.nodes[0]);
  std::string out;
  if (found.empty()) {
    std::set<std::string> readers;
    for (const ParameterLayout &row : report.parameters) {
      if (!names::matchGlob(name, row.name)) continue;
      if (readers.size() < shown) out += parameterLine(row);
      readers.insert(row.readers.begin(), row.readers.end());
    }
    found = nodesThat([&](const std::string &one) { return readers.contains(one); });
  }
  if (found.empty() && out.empty()) return {unknownName(report, name)};
  for (const auto &[node, one] : found | std::views::take(shown)) {
    const std::string shownName = display.of(one);
    out += explained(*node, shownName == one ? one : fmt::format("{}, {}", shownName, one));
  }
  if (found.size() > shown)
    out += fmt::format("and {} more that '{}' fits: give a longer name\n", found.size() - shown, name);
  return out;
}

} // namespace cleave::report
