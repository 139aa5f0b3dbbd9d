// `--explain NODE` and `--diff`.
#include "compiler/names/glob.h"
#include "compiler/report/report.h"
#include "compiler/report/single_changes.h"
#include "compiler/report/tables.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
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

std::string change(double left, double right) {
  if (left <= 0) return "";
  return fmt::format(" ({:+.1f} %)", 100 * (right / left - 1));
}

void line(std::string &out, const char *what, const std::string &left, const std::string &right,
          const std::string &note = "") {
  if (left != right) out += fmt::format("  {:<24} {} -> {}{}\n", what, left, right, note);
}

// One choice at a time; nothing when only names differ or the reports are older.
std::string singleChanges(const Report &left, const Report &right) {
  Result<std::vector<SingleChange>> rows = priceSingleChanges(left, right);
  if (!rows || rows->size() < 2) return "";
  std::string out = "each change by itself, all else as before (shardings chosen again)\n";
  const SingleChange &before = rows->front();
  size_t width = 40;
  for (const SingleChange &row : *rows) width = std::max(width, row.what.size());
  for (const SingleChange &row : *rows) {
    if (row.stepSeconds <= 0) {
      out += fmt::format("  {:<{}} {}\n", row.what, width, row.whyNot);
      continue;
    }
    out += fmt::format("  {:<{}} {:>10}{}, {}{}{}\n", row.what, width, formatSeconds(row.stepSeconds),
                       change(before.stepSeconds, row.stepSeconds), formatBytes(row.memoryBytes),
                       change(before.memoryBytes, row.memoryBytes), row.whyNot.empty() ? "" : ", " + row.whyNot);
  }
  return out;
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

// One node's candidates, those of its repetitions together.
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

// How a parameter lies, and what reads it.
std::string parameterLine(const ParameterLayout &row) {
  std::string out = fmt::format("{} [{}] (parameter)\n  lies    {}", row.name, fmt::join(row.dims, ","), row.parameter);
  out += row.state.empty() ? std::string(", frozen")
                           : fmt::format(", gradient {}, state {}, ZeRO stage {}", row.gradient, row.state, row.zero);
  constexpr size_t shown = 8;
  out += fmt::format("\n  read by {}", row.readers.empty() ? "nothing" : "");
  out += fmt::format("{}", fmt::join(row.readers | std::views::take(shown), ", "));
  if (row.readers.size() > shown) out += fmt::format(" and {} more", row.readers.size() - shown);
  return out + "\n";
}

// Names like the one that no node and no parameter has.
Status unknownName(const Report &report, const std::string &name) {
  std::vector<std::string> all, similar;
  for (const planner::NodeExplanation &node : report.nodes) all.insert(all.end(), node.nodes.begin(), node.nodes.end());
  const size_t nodes = all.size();
  for (const ParameterLayout &row : report.parameters) all.push_back(row.name);
  for (const std::string &one : all)
    if (similar.size() < 8 && one.find(name) != std::string::npos) similar.push_back(one);
  std::string known =
      similar.empty() ? names::suggestion(name, all) : fmt::format("; there are {}", fmt::join(similar, ", "));
  if (known.empty())
    known = fmt::format("; there are {}, for example (what is constant is none any more)",
                        fmt::join(all | std::views::take(std::min(nodes, size_t(3))), ", "));
  return inputError(fmt::format("no node and no parameter is called '{}'{}", name, known));
}

} // namespace

Result<std::string> explain(const Report &report, const std::string &name) {
  constexpr size_t shown = 16;
  // With the first name that fits.
  auto nodesThat = [&](auto fits) {
    std::vector<std::pair<const planner::NodeExplanation *, std::string>> found;
    for (const planner::NodeExplanation &node : report.nodes)
      if (auto first = std::ranges::find_if(node.nodes, fits); first != node.nodes.end())
        found.emplace_back(&node, *first);
    return found;
  };
  auto found = nodesThat([&](const std::string &one) { return names::matchGlob(name, one); });
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
  for (const auto &[node, one] : found | std::views::take(shown)) out += explained(*node, one);
  if (found.size() > shown)
    out += fmt::format("and {} more that '{}' fits: give a longer name\n", found.size() - shown, name);
  return out;
}

std::string diff(const Report &left, const Report &right) {
  std::string out;
  line(out, "model", left.model, right.model);
  line(out, "cluster", left.cluster, right.cluster);
  line(out, "software", left.software, right.software);
  line(out, "batch", fmt::format("{}", left.batch), fmt::format("{}", right.batch));
  line(out, "mesh", left.mesh.str(), right.mesh.str());
  line(out, "zero", zeroText(left), zeroText(right));
  const std::vector<ZeroChange> zeros = zeroChanges(left, right);
  for (size_t i = 0; i < std::min(zeros.size(), mostZeroChanges); ++i)
    line(out, ("zero of " + zeros[i].parameters).c_str(), fmt::format("{}", zeros[i].before),
         fmt::format("{}", zeros[i].after));
  if (zeros.size() > mostZeroChanges)
    out += fmt::format("  and of {} smaller kinds of parameters\n", zeros.size() - mostZeroChanges);
  line(out, "microbatches", fmt::format("{}", left.microbatches), fmt::format("{}", right.microbatches));
  line(out, "recompute", recomputeText(left), recomputeText(right));
  line(out, "schedule", left.schedule, right.schedule);
  line(out, "offload", left.offload, right.offload);
  const bool isSame = out.empty();
  std::string what = isSame ? "the split is the same\n" : "what changed\n" + out;

  std::string worth;
  auto seconds = [&](const char *name, double a, double b) {
    line(worth, name, formatSeconds(a), formatSeconds(b), change(a, b));
  };
  auto bytes = [&](const char *name, double a, double b) {
    line(worth, name, formatBytes(a), formatBytes(b), change(a, b));
  };
  seconds("step time", left.predicted.stepSeconds, right.predicted.stepSeconds);
  seconds("compute", left.predicted.computeSeconds, right.predicted.computeSeconds);
  seconds("exposed communication", left.predicted.exposedCommunicationSeconds,
          right.predicted.exposedCommunicationSeconds);
  seconds("bubble", left.predicted.bubbleSeconds, right.predicted.bubbleSeconds);
  seconds("hidden communication", left.predicted.hiddenCommunicationSeconds,
          right.predicted.hiddenCommunicationSeconds);
  const planner::MemoryBreakdown &a = left.predicted.memory, &b = right.predicted.memory;
  bytes("memory", a.total(), b.total());
  bytes("  parameters", a.parameters, b.parameters);
  bytes("  gradients", a.gradients, b.gradients);
  bytes("  optimizer", a.optimizer, b.optimizer);
  bytes("  activations", a.activations, b.activations);
  bytes("  workspace", a.workspace, b.workspace);
  bytes("host memory", a.host, b.host);
  if (!worth.empty()) what += "what it is worth\n" + worth;

  if (!isSame) what += singleChanges(left, right);

  std::map<std::string, std::pair<double, double>> traffic;
  for (const auto &row : left.collectives)
    traffic[fmt::format("{} over {}", row.op, fmt::join(row.axes, ","))].first += row.bytes;
  for (const auto &row : right.collectives)
    traffic[fmt::format("{} over {}", row.op, fmt::join(row.axes, ","))].second += row.bytes;
  std::string moved;
  for (const auto &[name, sizes] : traffic)
    line(moved, name.c_str(), formatBytes(sizes.first), formatBytes(sizes.second));
  if (!moved.empty()) what += "collectives\n" + moved;

  std::map<std::string, std::string> layouts;
  auto described = [](const ParameterLayout &row) {
    return row.parameter + (row.state.empty() ? " frozen" : " state " + row.state);
  };
  for (const ParameterLayout &row : left.parameters) layouts[row.name] = described(row);
  std::vector<std::string> changed;
  for (const ParameterLayout &row : right.parameters) {
    auto before = layouts.find(row.name);
    std::string now = described(row);
    if (before == layouts.end())
      changed.push_back(fmt::format("  {:<40} new: {}", row.name, now));
    else if (before->second != now)
      changed.push_back(fmt::format("  {:<40} {} -> {}", row.name, before->second, now));
    if (before != layouts.end()) layouts.erase(before);
  }
  for (const auto &[name, layout] : layouts) changed.push_back(fmt::format("  {:<40} gone", name));
  if (!changed.empty()) {
    size_t shown = std::min<size_t>(changed.size(), 20);
    what += fmt::format("parameters that lie differently: {}\n{}\n", changed.size(),
                        fmt::join(changed.begin(), changed.begin() + long(shown), "\n"));
    if (shown < changed.size()) what += fmt::format("  and {} more\n", changed.size() - shown);
  }
  return what;
}

} // namespace cleave::report
