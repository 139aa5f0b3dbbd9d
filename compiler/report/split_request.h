// What was asked for of a split, and the flags that give a report's split again.
//
//   SplitRequest again = requestOf(report);   // again.split.mesh == "dp=2,tp=4" of a grid dp=2,tp_row=2,tp_col=2
//   flagsText(again)                          "--like 2d --mesh dp=2,tp=4 --mesh-order dp,tp --zero 3 --microbatches 1"
#pragma once
#include "compiler/planner/problem/constraints.h"
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace cleave::report {

struct Report;

struct SplitRequest {
  planner::SplitFlags split = {};
  std::vector<std::string> searchMoves = {}; // planner::SearchOptions::moves
  bool annotations = true;                   // CompileRequest::annotations
};

// The report's choices as flags, with what was given: the search chooses the rest, and cuts, splits of operations and
// mixtures that were not given, again.
SplitRequest requestOf(const Report &report);

// As words of a shell command.
std::string flagsText(const SplitRequest &request);

// Only what is given: {"zero": "3", "pin": ["*.up.weight=-,tp"], "sequence_parallel": true}. `of` throws as JSON does.
nlohmann::ordered_json splitRequestJson(const SplitRequest &request);
SplitRequest splitRequestOf(const nlohmann::ordered_json &json);

} // namespace cleave::report
