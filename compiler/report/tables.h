// The tables of a report as cells of text: the text form and the HTML page show the same.
//
//   collectiveRows(report)  {"collective", "over", ...}, {"all_reduce", "dp", "12", "1.50 MiB", "85.0 us", "yes",
//   "..."}
#pragma once
#include "compiler/report/report.h"

namespace cleave::report {

using Row = std::vector<std::string>; // the first of each table: its heads

std::vector<Row> collectiveRows(const Report &report);
std::vector<Row> commandRows(const Report &report); // the last: all together
// Those with most bytes: "h.0..11.up.weight, h.0..11.down.weight, lm_head.weight and 5 more".
std::string movedTensors(const planner::CollectiveTotal &row, size_t shown);
std::vector<Row> stageRows(const Report &report);
// By layer, or by kind of operation: what takes longest first.
std::vector<planner::TimePart> timeSums(const Report &report, bool byLayer);
std::vector<Row> timeRows(const Report &report, bool byLayer);
Row timeRow(const Report &report, const planner::TimePart &sum);
void add(planner::TimePart &sum, const planner::TimePart &row);
std::vector<Row> sensitivityRows(const Report &report);
// Those that were priced; and those that cannot be built, "ddp, zero1, fsdp: the batch of 30 does not divide ...".
std::vector<Row> alternativeRows(const Report &report);
// The splits that were compiled beside each other, and their steps as predicted, simulated and, where they ran, measured.
std::vector<Row> triedRows(const Report &report);
std::vector<std::string> unbuildable(const Report &report);

// The recomputation of most blocks; where others do something else, how many: "none (of 24 blocks 12 selective)".
std::string recomputeText(const Report &report);
// "3", "3 (of some parameters 1)".
std::string zeroText(const Report &report);
// Columns as wide as their widest cell, each row behind `indent`, `gap` between them; the last column runs on. Where
// that is more than `width`, the widest columns are narrowed and a row takes several lines.
std::vector<std::string> tableLines(const std::vector<Row> &rows, const std::string &indent = "  ",
                                    const std::string &gap = " ", size_t width = SIZE_MAX);
// Words in lines of at most `width` characters, the lines after the first behind `indent` spaces.
std::string wrapped(const std::string &text, size_t width, size_t indent = 0);
std::string percent(double part, double all); // "12 %"; of nothing: empty
// A round distance of ticks, no less than `least`: 1, 2 or 5 times a power of ten.
double tickDistance(double least);
std::string escape(const std::string &text); // for HTML and SVG

} // namespace cleave::report
