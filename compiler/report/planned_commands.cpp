// The report's commands of an emitted plan: how many kernels and library calls a step starts, and the bytes that they
// move.
#include "compiler/report/planned_commands.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/routine.h"
#include <algorithm>
#include <map>

namespace cleave::report {
namespace {

double bytesOfBuffer(const plan::Buffer &buffer) { return double(std::max<int64_t>(0, runtime::byteSize(buffer))); }

// The bytes that the kernel reaches of each buffer, once.
double bytesOfLaunch(const plan::Plan &plan, const plan::Launch &launch) {
  const plan::Kernel &kernel = plan.kernels(launch.kernel());
  double bytes = 0;
  for (int i = 0; i < launch.buffers_size(); ++i) {
    const double whole = bytesOfBuffer(launch.buffers(i));
    if (kernel.buffers_size() != launch.buffers_size()) {
      bytes += whole;
      continue;
    }
    const plan::KernelBuffer &reached = kernel.buffers(i);
    const int64_t times = reached.per() > 0 ? (launch.extent() + reached.per() - 1) / reached.per() : 1;
    bytes += std::min(whole, double(reached.elements()) * double(times) * double(reached.element_bytes()));
  }
  return bytes;
}

// Its elements alone, where they lie in rows between others.
double bytesOfResult(const plan::Contract &product) {
  double elements = double(product.m()) * double(product.n());
  for (int64_t size : product.batch()) elements *= double(size);
  return std::min(bytesOfBuffer(product.out()), elements * double(runtime::byteSize(product.out().dtype())));
}

double bytesOfProduct(const plan::Contract &product) {
  double bytes = bytesOfBuffer(product.lhs()) + bytesOfBuffer(product.rhs()) +
                 bytesOfResult(product) * (product.accumulate() ? 2 : 1);
  if (product.has_bias()) bytes += bytesOfBuffer(product.bias());
  if (product.has_pre_activation()) bytes += bytesOfBuffer(product.pre_activation());
  if (product.has_lhs_sum()) bytes += bytesOfBuffer(product.lhs_sum());
  if (product.has_rhs_sum()) bytes += bytesOfBuffer(product.rhs_sum());
  return bytes;
}

double bytesMoved(const plan::Plan &plan, const plan::Command &command) {
  if (command.has_launch()) return bytesOfLaunch(plan, command.launch());
  if (command.has_contract()) return bytesOfProduct(command.contract());
  if (command.has_collective() || command.has_transfer()) return 0; // the table of collectives has them
  if (command.has_gather())
    return bytesOfBuffer(command.gather().indices()) + 2 * bytesOfBuffer(command.gather().out());
  if (command.has_copy()) {
    double elements = 1;
    for (int64_t size : command.copy().sizes()) elements *= double(size);
    return 2 * elements * double(runtime::byteSize(command.copy().source().dtype()));
  }
  double bytes = 0;
  if (command.has_launch_group()) {
    for (const plan::Launch &part : command.launch_group().parts()) bytes += bytesOfLaunch(plan, part);
    return bytes;
  }
  plan::Command others = command; // every operand once
  others.clear_launches();
  runtime::forEachBuffer(others, [&](plan::Buffer &buffer) { bytes += bytesOfBuffer(buffer); });
  return bytes;
}

} // namespace

std::vector<CommandTotal> plannedCommands(const plan::Plan &plan) {
  std::map<std::string, CommandTotal> sums;
  for (const plan::Program &program : plan.programs()) {
    const plan::Routine *step = runtime::findRoutine(program, "step");
    for (int a = 0; step && a < step->actions_size(); ++a)
      for (const plan::Command &command : program.fragments(step->actions(a).fragment()).commands()) {
        CommandTotal &sum = sums[runtime::kindName(command)];
        ++sum.count;
        sum.launches += std::max(1, command.launches_size());
        sum.bytes += bytesMoved(plan, command);
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
