// `--diff`: what differs, and its text.
#include "compiler/report/diff.h"
#include "compiler/report/tables.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <ranges>

namespace cleave::report {
namespace {

std::string changeText(double left, double right) {
  if (left <= 0) return "";
  return right >= 3 * left ? fmt::format("{:.3g} times", right / left)
                           : fmt::format("{:+.1f} %", 100 * (right / left - 1));
}

std::string inBrackets(const std::string &change) { return change.empty() ? "" : fmt::format(" ({})", change); }

void addIfDifferent(std::vector<Difference> &rows, const std::string &what, const std::string &left,
                    const std::string &right, const std::string &change = "") {
  if (left != right) rows.push_back({what, left, right, change});
}

std::vector<Difference> splitDifferences(const Report &left, const Report &right, int64_t &smallerZeroChanges) {
  std::vector<Difference> rows;
  auto number = [](int64_t value) { return fmt::format("{}", value); };
  addIfDifferent(rows, "model", left.model, right.model);
  addIfDifferent(rows, "cluster", left.cluster, right.cluster);
  addIfDifferent(rows, "software", left.software, right.software);
  addIfDifferent(rows, "batch", number(left.batch), number(right.batch));
  addIfDifferent(rows, "mesh", left.mesh.str(), right.mesh.str());
  addIfDifferent(rows, "zero", zeroText(left), zeroText(right));
  const std::vector<ZeroChange> zeros = zeroChanges(left, right);
  for (const ZeroChange &zero : zeros | std::views::take(mostZeroChanges))
    addIfDifferent(rows, "zero of " + zero.parameters, number(zero.before), number(zero.after));
  smallerZeroChanges = std::max<int64_t>(0, int64_t(zeros.size()) - int64_t(mostZeroChanges));
  addIfDifferent(rows, "microbatches", number(left.microbatches), number(right.microbatches));
  addIfDifferent(rows, "recompute", recomputeText(left), recomputeText(right));
  addIfDifferent(rows, "schedule", left.schedule, right.schedule);
  addIfDifferent(rows, "offload", left.offload, right.offload);
  addIfDifferent(rows, "chunks", std::to_string(left.chunks), std::to_string(right.chunks));
  return rows;
}

std::vector<Difference> predictionDifferences(const Report &left, const Report &right) {
  std::vector<Difference> rows;
  auto seconds = [&](const char *what, double planner::Predicted::*value) {
    const double a = left.predicted.*value, b = right.predicted.*value;
    addIfDifferent(rows, what, formatSeconds(a), formatSeconds(b), changeText(a, b));
  };
  auto bytes = [&](const char *what, double a, double b) {
    addIfDifferent(rows, what, formatBytes(a), formatBytes(b), changeText(a, b));
  };
  seconds("step time", &planner::Predicted::stepSeconds);
  seconds("compute", &planner::Predicted::computeSeconds);
  seconds("exposed communication", &planner::Predicted::exposedCommunicationSeconds);
  seconds("bubble", &planner::Predicted::bubbleSeconds);
  seconds("hidden communication", &planner::Predicted::hiddenCommunicationSeconds);
  const planner::MemoryBreakdown &a = left.predicted.memory, &b = right.predicted.memory;
  bytes("memory", a.total(), b.total());
  bytes("  parameters", a.parameters, b.parameters);
  bytes("  gradients", a.gradients, b.gradients);
  bytes("  optimizer", a.optimizer, b.optimizer);
  bytes("  activations", a.activations, b.activations);
  bytes("  workspace", a.workspace, b.workspace);
  bytes("host memory", a.host, b.host);
  return rows;
}

std::vector<Difference> trafficDifferences(const Report &left, const Report &right) {
  std::map<std::string, std::pair<double, double>> traffic;
  auto nameOf = [](const planner::CollectiveTotal &row) {
    return fmt::format("{} over {}", row.op, fmt::join(row.axes, ","));
  };
  for (const planner::CollectiveTotal &row : left.collectives) traffic[nameOf(row)].first += row.bytes;
  for (const planner::CollectiveTotal &row : right.collectives) traffic[nameOf(row)].second += row.bytes;
  std::vector<Difference> rows;
  for (const auto &[name, sizes] : traffic)
    addIfDifferent(rows, name, formatBytes(sizes.first), formatBytes(sizes.second),
                   changeText(sizes.first, sizes.second));
  return rows;
}

std::vector<Difference> layoutDifferences(const Report &left, const Report &right) {
  auto described = [](const ParameterLayout &row) {
    return row.parameter + (row.state.empty() ? " frozen" : " state " + row.state);
  };
  std::map<std::string, std::string> layouts;
  for (const ParameterLayout &row : left.parameters) layouts[row.name] = described(row);
  std::vector<Difference> rows;
  for (const ParameterLayout &row : right.parameters) {
    addIfDifferent(rows, row.name, layouts[row.name], described(row));
    layouts.erase(row.name);
  }
  for (const auto &[name, layout] : layouts) rows.push_back({name, layout, ""});
  return rows;
}

std::string lines(const char *title, const std::vector<Difference> &rows, bool hasChange) {
  std::string out = rows.empty() ? "" : fmt::format("{}\n", title);
  for (const Difference &row : rows)
    out += fmt::format("  {:<24} {} -> {}{}\n", row.what, row.left, row.right, hasChange ? inBrackets(row.change) : "");
  return out;
}

std::string singleLines(const std::vector<SingleChange> &rows) {
  if (rows.empty()) return "";
  std::string out = "each change by itself, all else as before (shardings chosen again)\n";
  const SingleChange &before = rows.front();
  size_t width = 40;
  for (const SingleChange &row : rows) width = std::max(width, row.what.size());
  for (const SingleChange &row : rows) {
    if (row.stepSeconds <= 0) {
      out += fmt::format("  {:<{}} {}\n", row.what, width, row.whyNot);
      continue;
    }
    out += fmt::format("  {:<{}} {:>10}{}, {}{}{}\n", row.what, width, formatSeconds(row.stepSeconds),
                       inBrackets(changeText(before.stepSeconds, row.stepSeconds)), formatBytes(row.memoryBytes),
                       inBrackets(changeText(before.memoryBytes, row.memoryBytes)),
                       row.whyNot.empty() ? "" : ", " + row.whyNot);
  }
  return out;
}

std::string layoutLines(const std::vector<Difference> &rows) {
  if (rows.empty()) return "";
  constexpr size_t shown = 20;
  std::string out = fmt::format("parameters with another layout: {}\n", rows.size());
  for (const Difference &row : rows | std::views::take(shown)) {
    const std::string how = row.left.empty()    ? "new: " + row.right
                            : row.right.empty() ? "gone"
                                                : fmt::format("{} -> {}", row.left, row.right);
    out += fmt::format("  {:<40} {}\n", row.what, how);
  }
  return rows.size() > shown ? out + fmt::format("  and {} more\n", rows.size() - shown) : out;
}

} // namespace

Differences differences(const Report &left, const Report &right) {
  Differences found;
  found.split = splitDifferences(left, right, found.smallerZeroChanges);
  found.worth = predictionDifferences(left, right);
  if (!found.isSameSplit())
    if (Result<std::vector<SingleChange>> rows = priceSingleChanges(left, right); rows && rows->size() > 1)
      found.singles = std::move(*rows);
  found.collectives = trafficDifferences(left, right);
  found.parameters = layoutDifferences(left, right);
  return found;
}

std::string diff(const Report &left, const Report &right) {
  const Differences found = differences(left, right);
  std::string out = found.isSameSplit() ? "the split is the same\n" : lines("what changed", found.split, false);
  if (found.smallerZeroChanges > 0)
    out += fmt::format("  and zero of {} smaller kinds of parameters\n", found.smallerZeroChanges);
  return out + lines("what it is worth", found.worth, true) + singleLines(found.singles) +
         lines("collectives", found.collectives, false) + layoutLines(found.parameters);
}

} // namespace cleave::report
