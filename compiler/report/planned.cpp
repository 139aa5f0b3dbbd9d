// The report's figures of an emitted plan, in place of the predicted ones: memory and collectives.
#include "compiler/cluster/cost.h"
#include "compiler/planner/explain/collective_sums.h"
#include "compiler/report/held_tensors.h"
#include "compiler/report/planned_commands.h"
#include "compiler/report/pricing_source.h"
#include "compiler/report/report.h"
#include "compiler/simulate/collective_price.h"
#include "compiler/simulate/simulate.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/dtype.h"
#include "runtime/plan/message_routes.h"
#include "runtime/plan/previous_weights.h"
#include "runtime/plan/routine.h"
#include "runtime/plan/staged_inputs.h"
#include <algorithm>
#include <map>
#include <set>

namespace cleave::report {
namespace {

// The first of the devices that run a program.
int64_t deviceOf(const plan::Plan &plan, const dist::Mesh &mesh, int program) {
  int64_t device = 0;
  while (runtime::programOf(plan, mesh, device) != program) ++device;
  return device;
}

// Message buffers that a device of a program allocates for what it sends to other stages.
double messageBytes(const plan::Plan &plan, const dist::Mesh &mesh, int program) {
  const int64_t device = deviceOf(plan, mesh, program);
  double bytes = 0;
  for (const runtime::MessageRoute &route : runtime::routesOf(plan, mesh, device))
    if (route.from == device) bytes += double(route.bytes * route.buffers);
  return bytes;
}

// The memory that the emitted program needs on a device. Gradients of the last microbatch are scratch: they share the
// reused part of the arena with the activations.
planner::MemoryBreakdown memoryOf(const plan::Plan &plan, const dist::Mesh &mesh, int number) {
  const plan::Program &program = plan.programs(number);
  planner::MemoryBreakdown memory;
  for (const plan::Parameter &parameter : plan.parameters()) {
    if (!isOnDevice(parameter, number)) continue;
    const double bytes = shardBytes(mesh, parameter);
    bool isWeights = parameter.name().starts_with(runtime::previousPrefix); // of the step before
    if (parameter.role() == plan::Parameter::OPTIMIZER_STATE && !isWeights)
      memory.optimizer += bytes;
    else if (parameter.role() == plan::Parameter::ACCUMULATOR)
      memory.gradients += bytes;
    else
      memory.parameters += bytes;
  }
  const double persistent = memory.parameters + memory.optimizer + memory.gradients;
  memory.activations = std::max(0.0, double(program.arena_bytes()) - persistent);
  memory.workspace = double(program.library_workspace_bytes()) + double(runtime::stagedBytes(plan, program)) +
                     messageBytes(plan, mesh, number);
  memory.host = double(program.host_bytes());
  return memory;
}

// Is there compute between the command and the first compute that waits for it, directly or through what other
// communication makes of it?
bool runsBesideCompute(const plan::Fragment &fragment, int index) {
  std::set<int> awaited = {fragment.commands(index).record_event()};
  for (int next = index + 1; next < fragment.commands_size(); ++next) {
    const plan::Command &command = fragment.commands(next);
    const bool waits = std::ranges::any_of(command.wait_events(), [&](int event) { return awaited.contains(event); });
    if (runtime::laneOf(command) == runtime::computeLane) return !waits;
    if (waits) awaited.insert(command.record_event());
  }
  return false;
}

// Sums by kind, axes and reason, over the programs of a pipeline's ranks.
class PlannedCollectives {
public:
  PlannedCollectives(const plan::Plan &plan, const planner::Cluster &cluster, const dist::Mesh &mesh,
                     const planner::DisplayNames &names)
      : plan(plan), cluster(cluster), mesh(mesh), sums(names) {}

  std::vector<planner::CollectiveTotal> list() {
    for (int program = 0; program < plan.programs_size(); ++program) add(program);
    return sums.list(plan.programs_size());
  }

private:
  void add(int number) {
    const plan::Program &program = plan.programs(number);
    const plan::Routine *step = runtime::findRoutine(program, "step");
    if (!step) return;
    const int64_t device = deviceOf(plan, mesh, number);
    std::map<int, int64_t> runs; // of a fragment
    for (const plan::Action &action : step->actions()) ++runs[action.fragment()];
    for (auto [index, times] : runs) {
      const plan::Fragment &fragment = program.fragments(index);
      for (int c = 0; c < fragment.commands_size(); ++c) {
        const plan::Command &command = fragment.commands(c);
        if (command.has_collective()) {
          const plan::Collective &collective = command.collective();
          const dist::Axes axes(collective.axes().begin(), collective.axes().end());
          const simulate::CollectivePrice price = simulate::priceOf(collective, cluster, mesh);
          add(runtime::kindName(command), axes, collective.why(),
              {price.bytes, price.seconds, double(times), runsBesideCompute(fragment, c),
               double(command.phase() == "forward"), double(command.phase() == "backward")},
              movedBy(collective));
        } else if (command.has_transfer() && command.transfer().direction() == plan::Transfer::SEND) {
          const plan::Transfer &transfer = command.transfer();
          const double bytes = double(runtime::byteSize(transfer.buffer()));
          const int64_t peer = runtime::evaluate(transfer.peer(), mesh, device);
          if (peer == device) continue; // its next stage has it already
          const planner::Tier tier = planner::tierBetween(cluster, device, peer);
          // A message buffer takes it: compute goes on.
          add("send", {dist::pipelineAxis}, transfer.why(),
              {bytes, planner::sendSeconds(cluster, tier, bytes), double(times), true}, {{transfer.tensor(), 1, 1}});
        }
      }
    }
  }

  // The parts of a bucket, `bytes` as parts of 1.
  static std::vector<planner::MovedTensor> movedBy(const plan::Collective &collective) {
    std::vector<planner::MovedTensor> tensors;
    for (int i = 0; i < collective.tensors_size() && i < collective.inputs_size() && collective.bytes() > 0; ++i)
      tensors.push_back(
          {collective.tensors(i), 1, double(runtime::byteSize(collective.inputs(i))) / double(collective.bytes())});
    return tensors;
  }

  // Adds a command that runs so many times a step; bytes and seconds once.
  void add(const std::string &op, const dist::Axes &axes, const std::string &why, planner::CollectiveSums::Share share,
           std::vector<planner::MovedTensor> tensors) {
    share.bytes *= share.times, share.seconds *= share.times;
    std::erase_if(tensors, [](const planner::MovedTensor &tensor) { return tensor.name.empty(); });
    for (planner::MovedTensor &tensor : tensors) tensor.bytes *= share.bytes;
    sums.add(op, axes, why, share, tensors);
  }

  const plan::Plan &plan;
  const planner::Cluster &cluster;
  const dist::Mesh &mesh;
  planner::CollectiveSums sums;
};

} // namespace

void fillFromPlan(Report &report, const plan::Plan &plan, const planner::Cluster &cluster) {
  Result<dist::Mesh> mesh = runtime::meshOf(plan.mesh());
  if (!mesh || plan.programs_size() == 0) return;
  std::vector<planner::MemoryBreakdown> memory; // of each rank's devices
  for (int program = 0; program < plan.programs_size(); ++program) memory.push_back(memoryOf(plan, *mesh, program));
  double host = 0;
  for (const planner::MemoryBreakdown &one : memory) host = std::max(host, one.host);
  report.predicted.memory = *std::ranges::max_element(memory, {}, &planner::MemoryBreakdown::total);
  report.predicted.memory.host = host; // another device may have more there
  report.memoryIsPlanned = true;
  report.tokensPerSample = plan.training().tokens_per_sample();
  const planner::DisplayNames names = displayNames(report.source);
  report.rankMemory.resize(memory.size());
  for (size_t rank = 0; rank < memory.size(); ++rank)
    nameHeldTensors(report.rankMemory[rank], plan, *mesh, int(rank), names);
  for (Stage &stage : report.stages) stage.memoryBytes = memory[memory.size() == 1 ? 0 : size_t(stage.rank)].total();
  report.collectives = PlannedCollectives(plan, cluster, *mesh, names).list();
  report.collectivesArePlanned = true;
  report.commands = plannedCommands(plan);
  if (auto step = simulate::simulateStep(plan, cluster))
    report.simulatedSeconds = step->seconds, report.simulatedShape = simulate::simulatedShape(plan);
  else
    report.notSimulated = step.status().message();
}

} // namespace cleave::report
