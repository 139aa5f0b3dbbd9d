#include "compiler/report/tables.h"
#include "runtime/base/printable.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <ranges>
#include <span>

namespace cleave::report {

std::string percent(double part, double all) { return all > 0 ? fmt::format("{:.0f} %", 100 * part / all) : ""; }

namespace {

// A line ends before the word that would pass `width`; a longer word is cut, behind a comma if it has one.
std::vector<std::string> linesOf(const std::string &text, size_t width) {
  width = std::max<size_t>(width, 1);
  std::vector<std::string> lines(1);
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    std::string word = text.substr(begin, end - begin);
    begin = end + 1;
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) lines.emplace_back();
    while (word.size() > width) {
      const size_t comma = word.rfind(',', width - 1), cut = comma == std::string::npos ? width : comma + 1;
      lines.back() = word.substr(0, cut);
      lines.emplace_back();
      word.erase(0, cut);
    }
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

} // namespace

std::string wrapped(const std::string &text, size_t width, size_t indent) {
  return fmt::format("{}", fmt::join(linesOf(text, width - std::min(width, indent)), "\n" + std::string(indent, ' ')));
}

std::vector<std::string> tableLines(const std::vector<Row> &rows, const std::string &indent, const std::string &gap,
                                    size_t width) {
  constexpr size_t narrowest = 8;
  std::vector<size_t> widths;
  for (const Row &row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  auto all = [&] {
    return std::accumulate(widths.begin(), widths.end(), indent.size() + gap.size() * (widths.size() - 1));
  };
  while (!widths.empty() && all() > width) {
    size_t &widest = *std::ranges::max_element(widths);
    if (widest <= narrowest) break;
    --widest;
  }
  std::vector<std::string> lines;
  for (const Row &row : rows) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 1;
    for (size_t i = 0; i < row.size(); ++i) {
      cells.push_back(row[i].size() <= widths[i] ? std::vector{row[i]} : linesOf(row[i], widths[i]));
      height = std::max(height, cells.back().size());
    }
    std::string text;
    for (size_t at = 0; at < height; ++at) {
      std::string line;
      for (size_t i = 0; i < row.size(); ++i)
        line += fmt::format("{}{:<{}}", i == 0 ? indent : gap, at < cells[i].size() ? cells[i][at] : "", widths[i]);
      text += line.erase(line.find_last_not_of(' ') + 1) + "\n";
    }
    lines.push_back(std::move(text));
  }
  return lines;
}

double tickDistance(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least) return factor * power;
  return 10 * power;
}

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

std::vector<Row> collectiveRows(const Report &report) {
  std::vector<Row> rows = {{"collective", "over", "count", "bytes", "alone", "beside compute", "why"}};
  for (const planner::CollectiveTotal &row : report.collectives)
    rows.push_back({row.op, fmt::format("{}", fmt::join(row.axes, ",")), fmt::format("{}", row.count),
                    formatBytes(row.bytes), formatSeconds(row.seconds), row.hidden ? "yes" : "no", row.shown});
  return rows;
}

std::vector<Row> commandRows(const Report &report) {
  std::vector<Row> rows = {{"command", "count", "kernels and library calls", "bytes"}};
  auto add = [&](const CommandTotal &row) {
    rows.push_back(
        {row.kind, fmt::format("{:.6g}", row.count), fmt::format("{:.6g}", row.launches), formatBytes(row.bytes)});
  };
  CommandTotal all{"all"};
  for (const CommandTotal &row : report.commands) {
    all.count += row.count, all.launches += row.launches, all.bytes += row.bytes;
    add(row);
  }
  add(all);
  return rows;
}

std::string movedTensors(const planner::CollectiveTotal &row, size_t shown) {
  std::string text;
  shown = std::min(shown, row.tensors.size());
  for (const planner::MovedTensor &tensor : row.tensors | std::views::take(shown))
    text += (text.empty() ? "" : ", ") + tensor.shown;
  const int64_t more = int64_t(row.tensors.size() - shown) + row.tensorsMore;
  return more > 0 ? text + fmt::format(" and {} more", more) : text;
}

namespace {

// "2 full, 1 selective", of these stages' blocks.
std::string recomputedBlocks(std::span<const Stage> stages) {
  int64_t full = 0, selective = 0, activations = 0;
  for (const Stage &stage : stages) {
    full += stage.recomputedBlocks;
    selective += stage.selectiveBlocks;
    activations += stage.activationBlocks;
  }
  std::vector<std::string> parts;
  if (full) parts.push_back(fmt::format("{} full", full));
  if (selective) parts.push_back(fmt::format("{} selective", selective));
  if (activations) parts.push_back(fmt::format("{} activations", activations));
  return parts.empty() ? "none" : fmt::format("{}", fmt::join(parts, ", "));
}

} // namespace

std::string recomputeText(const Report &report) {
  int64_t blocks = 0, most = 0, again = 0; // most: of one kind
  for (auto kind : {&Stage::recomputedBlocks, &Stage::selectiveBlocks, &Stage::activationBlocks}) {
    int64_t ofKind = 0;
    for (const Stage &stage : report.stages) ofKind += stage.*kind;
    most = std::max(most, ofKind);
    again += ofKind;
  }
  for (const Stage &stage : report.stages) blocks += stage.blocks;
  const bool isMixed = again > 0 && most < blocks;
  if (!isMixed) return report.recompute;
  return fmt::format("{} of {} blocks", recomputedBlocks(report.stages), blocks);
}

std::string zeroText(const Report &report) {
  if (report.lowerZero < 0) return fmt::format("{}", report.zero);
  return fmt::format("{} (of some parameters {})", report.zero, report.lowerZero);
}

namespace {

// "124 M", "7.86 G"
std::string millions(double count) {
  const int power = count >= 1e12 ? 2 : count >= 1e9 ? 1 : 0;
  return fmt::format("{:.3g} {}", count / std::pow(1e3, 2 + power), "MGT"[power]);
}

} // namespace

std::vector<Row> stageRows(const Report &report) {
  std::vector<Row> rows = {
      {"stage", "rank", "devices", "blocks", "recomputed", "parameters", "forward", "backward", "memory"}};
  for (size_t s = 0; s < report.stages.size(); ++s) {
    const Stage &stage = report.stages[s];
    rows.push_back({fmt::format("{}", s), fmt::format("{}", stage.rank), fmt::format("{}", stage.devices),
                    fmt::format("{}", stage.blocks), recomputedBlocks({&stage, 1}), millions(stage.parameters),
                    formatSeconds(stage.forwardSeconds), formatSeconds(stage.backwardSeconds),
                    formatBytes(stage.memoryBytes)});
  }
  return rows;
}

void add(planner::TimePart &sum, const planner::TimePart &row) {
  sum.count += row.count;
  sum.computeSeconds += row.computeSeconds;
  sum.communicationSeconds += row.communicationSeconds;
  sum.besideSeconds += row.besideSeconds;
}

std::vector<planner::TimePart> timeSums(const Report &report, bool byLayer) {
  std::vector<planner::TimePart> sums;
  for (const planner::TimePart &row : report.timeParts) {
    const std::string &name = byLayer ? row.part : row.op;
    auto found = std::find_if(sums.begin(), sums.end(), [&](const auto &sum) { return sum.part == name; });
    if (found == sums.end()) found = sums.insert(sums.end(), {name, "", 0, 0, 0, 0});
    add(*found, row);
  }
  auto seconds = [](const planner::TimePart &sum) { return sum.computeSeconds + sum.communicationSeconds; };
  std::sort(sums.begin(), sums.end(), [&](const auto &a, const auto &b) {
    return std::pair(-seconds(a), a.part) < std::pair(-seconds(b), b.part);
  });
  return sums;
}

Row timeRow(const Report &report, const planner::TimePart &sum) {
  return {sum.part,
          fmt::format("{}", sum.count),
          formatSeconds(sum.computeSeconds),
          percent(sum.computeSeconds, report.predicted.stepSeconds),
          formatSeconds(sum.communicationSeconds),
          formatSeconds(sum.besideSeconds)};
}

std::vector<Row> timeRows(const Report &report, bool byLayer) {
  std::vector<Row> rows = {{byLayer ? "layer" : "operation", "count", "compute", "share", "exposed", "beside compute"}};
  for (const planner::TimePart &sum : timeSums(report, byLayer))
    if (sum.computeSeconds + sum.communicationSeconds + sum.besideSeconds > 0) rows.push_back(timeRow(report, sum));
  return rows;
}

std::vector<Row> sensitivityRows(const Report &report) {
  std::vector<Row> rows = {{"twice the", "step time", "less"}};
  for (const planner::Sensitivity &row : report.sensitivities) {
    const double less = 1 - row.stepSeconds / report.predicted.stepSeconds;
    if (less < 0.0005) continue;
    rows.push_back({row.what, formatSeconds(row.stepSeconds), fmt::format("{:.1f} %", 100 * less)});
  }
  return rows.size() > 1 ? rows : std::vector<Row>();
}

std::vector<Row> alternativeRows(const Report &report) {
  std::vector<Row> rows = {
      {"name", "mesh", "schedule", "zero", "micro", "recompute", "step time", "memory", "why not"}};
  for (const planner::Alternative &row : report.alternatives) {
    if (!row.mesh.axes.empty())
      rows.push_back({row.name, row.mesh.str(), row.schedule, fmt::format("{}", row.zero),
                      fmt::format("{}", row.microbatches), planner::name(row.recompute), formatSeconds(row.stepSeconds),
                      formatBytes(row.memoryBytes),
                      !row.fits            ? "does not fit"
                      : row.whyNot.empty() ? "as fast"
                                           : row.whyNot});
  }
  return rows;
}

std::vector<std::string> unbuildable(const Report &report) {
  std::vector<std::pair<std::string, std::vector<std::string>>> reasons; // and the names with it
  for (const planner::Alternative &row : report.alternatives) {
    if (!row.mesh.axes.empty()) continue;
    auto found = std::ranges::find(reasons, row.whyNot, [](const auto &one) { return one.first; });
    if (found == reasons.end()) found = reasons.insert(found, {row.whyNot, {}});
    found->second.push_back(row.name);
  }
  std::vector<std::string> lines;
  for (const auto &[why, names] : reasons) lines.push_back(fmt::format("{}: {}", fmt::join(names, ", "), why));
  return lines;
}

} // namespace cleave::report
