#include "compiler/report/report.h"
#include "compiler/planner/cost.h"
#include "compiler/planner/search.h"
#include "compiler/report/pricing_source.h"
#include "runtime/plan/coordinate.h"
#include "runtime/plan/message_routes.h"
#include "runtime/plan/previous_weights.h"
#include "runtime/plan/routine.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>
#include <tuple>

namespace cleave::report {
namespace {

double shardBytes(const plan::Plan &plan, const plan::Parameter &parameter) {
  static const std::map<plan::DType, double> sizes = {{plan::F64, 8},  {plan::I64, 8}, {plan::U64, 8}, {plan::F16, 2},
                                                      {plan::BF16, 2}, {plan::I16, 2}, {plan::U16, 2}, {plan::I8, 1},
                                                      {plan::U8, 1},   {plan::BOOL, 1}};
  auto size = sizes.find(parameter.dtype());
  double bytes = size == sizes.end() ? 4 : size->second;
  for (int64_t dim : parameter.shape()) bytes *= double(dim);
  for (const plan::DimSharding &dim : parameter.dims())
    for (const std::string &axis : dim.axes())
      for (const plan::MeshAxis &meshAxis : plan.mesh().axes())
        if (meshAxis.name() == axis) bytes /= double(meshAxis.size());
  return bytes;
}

// Where a group's ranks stand: its axes from the innermost, each as far apart as the axes inside it make it.
planner::GroupShape groupShape(const planner::Cluster &cluster, const dist::Mesh &mesh, const dist::Axes &axes) {
  int64_t stride = 1, size = 1, perNode = 1;
  for (size_t i = mesh.axes.size(); i-- > 0;) {
    const dist::MeshAxis &axis = mesh.axes[i];
    if (std::find(axes.begin(), axes.end(), axis.name) != axes.end()) {
      perNode *= planner::groupAlong(cluster, axis.size, stride).perNode;
      size *= axis.size;
    }
    stride *= axis.size;
  }
  return {size, perNode};
}

double collectiveSeconds(const planner::Cluster &cluster, const dist::Mesh &mesh, const dist::Axes &axes,
                         const plan::Collective &collective) {
  planner::GroupShape group = groupShape(cluster, mesh, axes);
  double bytes = double(collective.bytes()), n = double(group.size);
  switch (collective.op()) {
  case plan::Collective::ALL_REDUCE:
    return planner::collectiveSeconds(cluster, planner::Collective::AllReduce, group, bytes);
  case plan::Collective::REDUCE_SCATTER:
    return planner::collectiveSeconds(cluster, planner::Collective::ReduceScatter, group, bytes);
  case plan::Collective::ALL_GATHER:
    return planner::collectiveSeconds(cluster, planner::Collective::AllGather, group, bytes * n);
  case plan::Collective::ALL_TO_ALL:
    return planner::collectiveSeconds(cluster, planner::Collective::AllToAll, group, bytes * n);
  case plan::Collective::BROADCAST:
    return planner::collectiveSeconds(cluster, planner::Collective::AllGather, group, bytes);
  case plan::Collective::SHIFT: // one message to a neighbour: what each of the n - 1 turns of a gather does
    return planner::collectiveSeconds(cluster, planner::Collective::AllGather, group, bytes * n) / (n - 1);
  default:
    return 0;
  }
}

const char *opName(plan::Collective::Op op) {
  switch (op) {
  case plan::Collective::ALL_REDUCE:
    return "all_reduce";
  case plan::Collective::REDUCE_SCATTER:
    return "reduce_scatter";
  case plan::Collective::ALL_GATHER:
    return "all_gather";
  case plan::Collective::ALL_TO_ALL:
    return "all_to_all";
  case plan::Collective::BROADCAST:
    return "broadcast";
  case plan::Collective::SHIFT:
    return "shift";
  default:
    return "collective";
  }
}

std::string scaled(double value, double base, std::initializer_list<const char *> units) {
  const char *unit = *units.begin();
  for (const char *next : units) {
    unit = next;
    if (std::abs(value) < base * 0.9995 || next == *(units.end() - 1)) break;
    value /= base;
  }
  int digits = std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", value, value == 0 ? 0 : digits, unit);
}

std::vector<Stage> stagesOf(const planner::Problem &problem, const planner::Decision &decision, double parameters) {
  double microbatches = double(decision.microbatches);
  std::vector<Stage> stages;
  for (const planner::StageDecision &from : decision.stageDecisions) {
    Stage stage;
    stage.devices = from.devices;
    stage.nodes = from.nodes;
    stage.parameters = from.parameters;
    stage.memoryBytes = from.memory.total();
    stage.rank = from.rank;
    stage.blocks = from.blocks;
    stage.selectiveBlocks = from.selectiveBlocks;
    stage.recomputedBlocks = from.recomputedBlocks;
    stage.forwardSeconds = from.forward * microbatches;
    stage.backwardSeconds = (from.backwardInput + from.backwardWeight) * microbatches;
    stage.reductionSeconds = from.reduction;
    stage.updateSeconds = from.update;
    stage.stepSeconds = stage.forwardSeconds + stage.backwardSeconds + stage.updateSeconds;
    stages.push_back(stage);
  }
  if (stages.size() > 1) return stages;
  Stage all = stages.empty() ? Stage() : stages[0];
  all.devices = decision.mesh.numDevices();
  all.nodes = int64_t(problem.nodes.size());
  all.parameters = parameters;
  all.stepSeconds = decision.predicted.stepSeconds;
  all.memoryBytes = decision.predicted.memory.total();
  return {all};
}

} // namespace

std::string formatBytes(double bytes) { return scaled(bytes, 1024, {"B", "KiB", "MiB", "GiB", "TiB", "PiB"}); }

std::string formatSeconds(double seconds) {
  if (std::abs(seconds) >= 1) return scaled(seconds, 1e12, {"s"});
  return scaled(seconds * 1e6, 1000, {"us", "ms"});
}

Report makeReport(const planner::Problem &problem, const planner::Cluster &cluster, const planner::Decision &decision) {
  Report report;
  report.model = problem.name;
  report.cluster = cluster.name;
  report.batch = problem.batch;
  report.mesh = decision.mesh;
  report.schedule = decision.schedule;
  report.recompute = planner::name(decision.recompute);
  if (decision.exceptLast) report.recompute += ":except-last";
  report.offload = planner::name(decision.offload);
  report.like = decision.like;
  report.zero = decision.zero;
  report.microbatches = decision.microbatches;
  report.devices = decision.mesh.numDevices();
  report.predicted = decision.predicted;
  report.deviceMemoryBytes = cluster.device.memoryBytes;
  report.estimatedMemoryBytes = decision.predicted.memory.total();
  report.searchSeconds = decision.searchSeconds;
  report.gap = decision.gap;
  report.gapIsOfAllSplits = decision.gapIsOfAllSplits;
  report.candidates = decision.candidates;
  report.collectives = decision.collectives;
  report.alternatives = decision.alternatives;
  report.notes = decision.notes;
  std::map<std::string, const planner::Tensor *> tensors;
  double parameters = 0;
  for (const planner::Tensor &tensor : problem.tensors) {
    if (tensor.kind != planner::TensorKind::Parameter) continue;
    parameters += double(tensor.elements());
    tensors[tensor.name] = &tensor;
  }
  report.stages = stagesOf(problem, decision, parameters);
  for (const planner::ParameterDecision &parameter : decision.parameters)
    if (auto tensor = tensors.find(parameter.name); tensor != tensors.end())
      report.parameters.push_back({parameter.name, parameter.parameter.str(), parameter.gradient.str(),
                                   parameter.state.str(), tensor->second->dims});
  auto take = [&](auto result, auto &into, const char *what) {
    if (result)
      into = std::move(*result);
    else
      report.notes.push_back(fmt::format("no {}: {}", what, result.status().message()));
  };
  if (auto decided = planner::decidedModel(problem, cluster, decision)) {
    report.nodes = planner::explainAll(*decided);
    report.timeParts = planner::timeParts(*decided);
    take(planner::memoryOverTime(*decided), report.memoryOverTime, "memory over time");
    take(planner::sensitivities(*decided), report.sensitivities, "sensitivity");
  } else
    report.notes.push_back(fmt::format("nothing beside the choice can be told: {}", decided.status().message()));
  if (decision.twiceMemorySeconds > 0)
    report.sensitivities.push_back({"memory (split chosen again)", decision.twiceMemorySeconds});
  report.source = packSource(problem, cluster);
  return report;
}

namespace {

// Message buffers that a device of a program allocates for what it sends to other stages.
double messageBytes(const plan::Plan &plan, int program) {
  Result<dist::Mesh> mesh = runtime::meshOf(plan.mesh());
  if (!mesh) return 0;
  int64_t device = 0;
  while (device < mesh->numDevices() && runtime::programOf(plan, *mesh, device) != program) ++device;
  if (device == mesh->numDevices()) return 0;
  double bytes = 0;
  for (const runtime::MessageRoute &route : runtime::routesOf(plan, *mesh, device))
    if (route.from == device) bytes += double(route.bytes * route.buffers);
  return bytes;
}

} // namespace

void fillFromPlan(Report &report, const plan::Plan &plan, const planner::Cluster &cluster) {
  if (plan.programs_size() == 0) return;
  // Of a pipeline, the rank with the largest arena.
  int number = 0;
  for (int other = 1; other < plan.programs_size(); ++other)
    if (plan.programs(other).arena_bytes() > plan.programs(number).arena_bytes()) number = other;
  const plan::Program &program = plan.programs(number);
  planner::MemoryBreakdown memory;
  for (const plan::Parameter &parameter : plan.parameters()) {
    const auto &held = parameter.pp_coordinates();
    if (!held.empty() && std::find(held.begin(), held.end(), number) == held.end()) continue;
    double bytes = shardBytes(plan, parameter);
    if (parameter.on_host()) continue;
    bool isWeights = parameter.name().starts_with(runtime::previousPrefix); // of the step before
    if (parameter.role() == plan::Parameter::OPTIMIZER_STATE && !isWeights)
      memory.optimizer += bytes;
    else if (parameter.role() == plan::Parameter::ACCUMULATOR)
      memory.gradients += bytes;
    else
      memory.parameters += bytes;
  }
  // Gradients of the last microbatch are scratch: they share the reused part of the arena with the activations.
  double persistent = memory.parameters + memory.optimizer + memory.gradients;
  memory.activations = std::max(0.0, double(program.arena_bytes()) - persistent);
  for (const plan::Program &each : plan.programs()) memory.host = std::max(memory.host, double(each.host_bytes()));
  memory.workspace = double(program.library_workspace_bytes()) + messageBytes(plan, number);
  report.predicted.memory = memory;
  report.memoryIsPlanned = true;
  for (Stage &stage : report.stages) stage.memoryBytes = memory.total();

  std::map<std::tuple<std::string, dist::Axes, std::string>, planner::CollectiveTotal> sums;
  std::map<int, int64_t> runs; // of a fragment in a step
  for (const plan::Routine &routine : program.routines())
    if (routine.name() == "step")
      for (const plan::Action &action : routine.actions()) ++runs[action.fragment()];
  for (auto [index, times] : runs) {
    const plan::Fragment &fragment = program.fragments(index);
    for (const plan::Command &command : fragment.commands()) {
      if (!command.has_collective()) continue;
      const plan::Collective &collective = command.collective();
      dist::Axes axes(collective.axes().begin(), collective.axes().end());
      planner::CollectiveTotal &sum = sums[{opName(collective.op()), axes, collective.why()}];
      sum.op = opName(collective.op());
      sum.axes = axes;
      sum.why = collective.why();
      sum.count += times;
      sum.bytes += double(times) * double(collective.bytes());
      sum.seconds += double(times) * collectiveSeconds(cluster, report.mesh, axes, collective);
    }
  }
  report.collectives.clear();
  for (auto &[key, sum] : sums) report.collectives.push_back(std::move(sum));
  std::sort(report.collectives.begin(), report.collectives.end(), [](const auto &a, const auto &b) {
    return std::tie(b.bytes, a.op, a.why) < std::tie(a.bytes, b.op, b.why);
  });
  report.collectivesArePlanned = true;
}

std::string comparedPlans(const Report &report) {
  std::string plans =
      "plans with one ZeRO stage for all parameters, as many devices in every stage, samples that divide";
  if (!report.gapIsOfAllSplits) plans += ", operations split in the ways that were looked at";
  if (report.schedule == "zb-1p" || report.schedule == "zb-2p") plans += ", schedules but zb-1p and zb-2p";
  return plans;
}

} // namespace cleave::report
