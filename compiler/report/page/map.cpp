// The map of the split on the page: parts and operations fold without a script, and the lines between operations are
// drawn beside them, a column for each result that is read further below.
#include "compiler/report/page/charts.h"
#include "compiler/report/split_map.h"
#include "compiler/report/tables.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iterator>

namespace cleave::report {
namespace {

constexpr int firstColumn = 10, columnWidth = 9, rowMiddle = 13; // pixels
constexpr size_t mostColumns = 14;

// The colour of an axis: those of a grid are tp's, that of shards is dp's.
std::string axisColour(const std::string &axis) {
  if (axis.starts_with("tp")) return "tp";
  return axis == "fsdp" ? "dp" : axis;
}

std::string axisName(const std::string &axis, const std::string &text) {
  return fmt::format("<span class=\"axis-name\" style=\"border-left-color:var(--{})\"><span>{}</span></span>",
                     axisColour(axis), escape(text));
}

// A line of the picture: from an operation to the last that reads its result.
struct Wire {
  int from = -1, to = 0; // operations of the part; -1: above, their number: below
  bool isMoved = false;  // by a collective
  size_t column = 0;
};

// Wires that share no row may share a column. What does not fit is in words only.
std::vector<Wire> wiresOf(const MapPart &part) {
  const int count = int(part.operations.size());
  std::vector<Wire> wires;
  int lastFromAbove = -1;
  for (int i = 0; i < count; ++i) {
    const MapOperation &operation = part.operations[size_t(i)];
    if (operation.readsFromAbove) lastFromAbove = i;
    int last = operation.readBelow ? count : -1;
    for (int reader : operation.readers) last = std::max(last, reader);
    const std::vector<std::string> &names = operation.choice->nodes;
    const bool isMoved = std::ranges::any_of(operation.collectives, [&](const planner::TensorCollective *row) {
      return std::ranges::count(names, row->tensor) > 0; // and not a parameter
    });
    if (last > i) wires.push_back({i, last, isMoved});
  }
  if (lastFromAbove >= 0) wires.push_back({-1, lastFromAbove});
  std::ranges::sort(wires, {}, [](const Wire &wire) { return std::pair(wire.from, wire.to); });
  std::vector<int> freeFrom; // by column
  std::vector<Wire> placed;
  for (Wire &wire : wires) {
    size_t column = 0;
    while (column < freeFrom.size() && freeFrom[column] > wire.from) ++column;
    if (column == mostColumns) continue;
    if (column == freeFrom.size()) freeFrom.push_back(0);
    freeFrom[column] = wire.to;
    wire.column = column;
    placed.push_back(wire);
  }
  return placed;
}

bool reads(const MapPart &part, const Wire &wire, int row) {
  if (wire.from < 0) return part.operations[size_t(row)].readsFromAbove;
  const std::vector<int> &readers = part.operations[size_t(wire.from)].readers;
  return std::ranges::count(readers, row) > 0;
}

// The part of the picture that is beside one operation.
std::string picture(const MapPart &part, const std::vector<Wire> &wires, int row) {
  std::string out = "<svg aria-hidden=\"true\">";
  auto line = [&](int x, int otherX, const std::string &y, const std::string &otherY, bool isMoved) {
    fmt::format_to(std::back_inserter(out), "<line{} x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>",
                   isMoved ? " class=\"moved\"" : "", x, otherX, y, otherY);
  };
  const std::string middle = fmt::format("{}", rowMiddle);
  int furthest = firstColumn;
  bool isMoved = false;
  for (const Wire &wire : wires) {
    if (row < wire.from || row > wire.to) continue;
    const int x = firstColumn + columnWidth * int(wire.column + 1);
    line(x, x, row == wire.from ? middle : "0", row == wire.to ? middle : "100%", wire.isMoved);
    if ((row == wire.from || reads(part, wire, row)) && x > furthest) furthest = x, isMoved = wire.isMoved;
  }
  if (furthest > firstColumn) line(firstColumn, furthest, middle, middle, isMoved);
  const dist::Axes &axes = part.operations[size_t(row)].axes;
  const dist::Axes shown = axes.empty() ? dist::Axes{"whole"} : axes;
  for (size_t i = 0; i < shown.size(); ++i)
    fmt::format_to(std::back_inserter(out),
                   "<rect x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"12\" fill=\"var(--{})\"/>",
                   firstColumn - 6 + 12.0 * double(i) / double(shown.size()), rowMiddle - 6,
                   12.0 / double(shown.size()), axisColour(shown[i]));
  return out + "</svg>";
}

std::string moveText(const planner::TensorCollective &row) {
  return fmt::format("{} over {}", row.op, fmt::join(row.axes, ","));
}

// A line for each tensor, a word for each kind of collective. The script shows the lines on hover, too.
std::string operationEntry(const MapPart &part, const std::vector<Wire> &wires, int index) {
  const MapOperation &operation = part.operations[size_t(index)];
  std::string lines, moves;
  auto add = [&](const char *what, const MapTensor &tensor) {
    lines +=
        fmt::format("<li>{}</li>",
                    escape(fmt::format("{} {}{}{}", what, tensor.name, tensor.name.empty() ? "" : " ", tensor.layout)));
  };
  for (const MapTensor &tensor : operation.reads) add("reads", tensor);
  for (const MapTensor &tensor : operation.parameters) add("parameter", tensor);
  for (const MapTensor &tensor : operation.makes) add("makes", tensor);
  std::vector<std::string> told;
  for (const planner::TensorCollective *row : operation.collectives) {
    lines += fmt::format("<li>{} of {}, {}, {} a step: {}</li>", escape(moveText(*row)), escape(row->tensor),
                         formatBytes(row->bytes), formatSeconds(row->seconds), escape(row->why));
    if (std::ranges::count(told, moveText(*row))) continue;
    told.push_back(moveText(*row));
    moves += fmt::format(" <span class=\"move\">◆ {}</span>", escape(moveText(*row)));
  }
  std::string chips;
  for (const std::string &axis : operation.axes) chips += axisName(axis, axis);
  return fmt::format("<details class=\"operation\"><summary>{}<b>{}</b> <span class=\"name\">{}</span> "
                     "{}{}</summary><ul>{}</ul><pre tabindex=\"0\">{}</pre></details>\n",
                     picture(part, wires, index), escape(operation.choice->op), escape(operation.name), chips, moves,
                     lines, escape(explained(*operation.choice, operation.choice->nodes[0])));
}

std::string partEntry(const Report &report, const MapPart &part) {
  const std::vector<Wire> wires = wiresOf(part);
  size_t columns = 0, moving = 0;
  std::string rows, chips;
  for (const Wire &wire : wires) columns = std::max(columns, wire.column + 1);
  for (size_t i = 0; i < part.operations.size(); ++i) {
    rows += operationEntry(part, wires, int(i));
    moving += part.operations[i].collectives.size();
  }
  for (const dist::MeshAxis &axis : report.mesh.axes)
    if (std::ranges::any_of(part.operations,
                            [&](const MapOperation &one) { return std::ranges::count(one.axes, axis.name) > 0; }))
      chips += axisName(axis.name, axis.name);
  if (part.firstStage >= 0)
    chips += axisName("pp", part.firstStage == part.lastStage
                                ? fmt::format("stage {}", part.firstStage)
                                : fmt::format("stages {} to {}", part.firstStage, part.lastStage));
  planner::TimePart time;
  for (const planner::TimePart &row : report.timeParts)
    if (row.part == part.name) add(time, row);
  return fmt::format(
      "<details class=\"part\"><summary><b>{}</b>{}<span class=\"soft\">{} operations, {} compute ({} of "
      "the step), {} collectives</span></summary>\n<div style=\"--gutter:{}px\">{}</div></details>\n",
      escape(part.name), chips, part.operations.size(), formatSeconds(time.computeSeconds),
      percent(time.computeSeconds, report.predicted.stepSeconds), moving, firstColumn + columnWidth * int(columns + 1),
      rows);
}

} // namespace

std::string mapOfSplit(const Report &report) {
  std::string parts, legend;
  for (const MapPart &part : splitMap(report)) parts += partEntry(report, part);
  if (parts.empty()) return "";
  for (const dist::MeshAxis &axis : report.mesh.axes)
    if (axis.size > 1) legend += fmt::format("<li>{}</li>", axisName(axis.name, axis.name));
  return fmt::format("<p>Each part opens to its operations, each operation to the layouts of its tensors, its "
                     "collectives and the price of every way to split it. Lines lead down to the readers of a result; "
                     "a collective moves it where the line is dashed. Repetitions of a block are split alike and "
                     "stand here once. Collectives are those that the split implies, before small ones are joined."
                     "</p>\n<ul class=\"legend\">{}<li>{}</li></ul>\n<div id=\"operations\">{}</div>\n",
                     legend, axisName("whole", "whole on every device"), parts);
}

} // namespace cleave::report
