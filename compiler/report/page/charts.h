// The pictures of a report's page, as SVG or HTML. Colours are the style's variables, so that they follow the scheme.
#pragma once
#include "compiler/report/report.h"
#include <string>
#include <vector>

namespace cleave::report {

struct BarPart {
  const char *name;   // words: "exposed communication"
  const char *colour; // a variable of page.css: "exposed"
  double value;
  std::string label; // the value for people
};
// Parts of a whole, with a legend.
std::string bar(const std::vector<BarPart> &parts);

// Memory in use over the step, kind upon kind, with axes, the peak and the device's capacity; with `hasHover` the
// figures of each moment. "" without points.
std::string memoryChart(const Report &report, const std::vector<planner::MemoryPoint> &points, bool hasHover);

// Step time and memory of the choice and of the alternatives, each a link to its row, with those that no other beats in
// both. "" without alternatives.
std::string alternativesChart(const Report &report);

// The step of each pipeline rank: passes, collectives and transfers, drawn by timeline.js from the data that stand
// beside; a very long step shows its beginning. "" where no schedule tells.
std::string timeline(const Report &report);

// The model's parts, folded, and in each its operations with lines from each to its readers (split_map.h): coloured by
// the axes that split them, with layouts, collectives and prices behind each. "" where the report has no source.
std::string mapOfSplit(const Report &report);

} // namespace cleave::report
