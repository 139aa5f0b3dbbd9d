// The commands of a step, counted in an emitted plan.
//
//   report.commands = plannedCommands(plan);      // {"contract", 74, 74, 1.2e10}, {"launch", 241, 241, 9.9e9}, ...
#pragma once
#include "compiler/report/report.h"

namespace cleave::report {

// Those with most bytes first; the mean of a pipeline's ranks.
std::vector<CommandTotal> plannedCommands(const plan::Plan &plan);

} // namespace cleave::report
