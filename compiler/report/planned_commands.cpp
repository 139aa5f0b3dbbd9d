// The report's commands of an emitted plan: how many kernels and library calls a step starts, and the bytes that they
// move.
#include "compiler/report/planned_commands.h"
#include "compiler/simulate/command_work.h"
#include "runtime/plan/routine.h"
#include <algorithm>
#include <map>

namespace cleave::report {

std::vector<CommandTotal> plannedCommands(const plan::Plan &plan) {
  const simulate::PlanWork work(plan);
  std::map<std::string, CommandTotal> sums;
  for (const plan::Program &program : plan.programs()) {
    const plan::Routine *step = runtime::findRoutine(program, "step");
    for (int a = 0; step && a < step->actions_size(); ++a)
      for (const plan::Command &command : program.fragments(step->actions(a).fragment()).commands()) {
        CommandTotal &sum = sums[runtime::kindName(command)];
        const simulate::CommandWork one = work.of(command);
        ++sum.count;
        sum.launches += one.launches;
        sum.bytes += one.bytes;
      }
  }
  std::vector<CommandTotal> totals;
  for (auto &[kind, sum] : sums) {
    const auto ranks = double(plan.programs_size());
    totals.push_back({kind, sum.count / ranks, sum.launches / ranks, sum.bytes / ranks});
  }
  std::ranges::stable_sort(totals, std::ranges::greater(), &CommandTotal::bytes);
  return totals;
}

} // namespace cleave::report
