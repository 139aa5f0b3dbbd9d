#include "compiler/planner/outer_search.h"
#include "compiler/planner/device_presets.h"
#include "compiler/planner/schedule/schedule.h"
#include "compiler/planner/split_candidates.h"
#include <algorithm>
#include <fmt/format.h>
#include <limits>

namespace cleave::planner {
namespace {

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> result;
  for (int64_t d = 1; d <= number; ++d)
    if (number % d == 0) result.push_back(d);
  return result;
}

// Mesh shapes and microbatch counts; ZeRO and recomputation are chosen on the same model.
std::vector<Setting> shapes(const Problem &problem, const Cluster &cluster, const Constraints &constraints,
                            bool mustDivide) {
  std::vector<Setting> result;
  int64_t pp = constraints.pp.value_or(1), fsdp = constraints.fsdp.value_or(1);
  if (cluster.numDevices() % pp != 0) return result;
  int64_t devices = cluster.numDevices() / pp;
  for (int64_t tp : divisors(devices)) {
    if (constraints.tp && *constraints.tp != tp) continue;
    if (devices / tp % fsdp != 0) continue;
    int64_t dp = devices / tp / fsdp;
    if (constraints.dp && *constraints.dp != dp) continue;
    for (int64_t microbatches : divisors(problem.batch)) {
      if (constraints.microbatches && *constraints.microbatches != microbatches) continue;
      bool divides = problem.batch / microbatches % (dp * fsdp) == 0;
      if (divides != mustDivide) continue;
      if (!divides && microbatches > 1 && !constraints.microbatches) continue;
      Setting setting;
      setting.pp = pp;
      if (pp > 1) setting.schedule = constraints.schedule.value_or("1f1b");
      setting.dp = dp;
      setting.fsdp = fsdp;
      setting.tp = tp;
      setting.microbatches = microbatches;
      setting.batchDivides = divides;
      result.push_back(setting);
    }
  }
  return result;
}

std::vector<Recompute> recomputations(const Constraints &constraints, const SearchOptions &options, bool hasBlocks) {
  if (constraints.recompute) return {*constraints.recompute};
  if (!hasBlocks) return {Recompute::None};
  if (options.executableOnly) return {Recompute::None, Recompute::Full};
  return {Recompute::None, Recompute::Selective, Recompute::Full};
}

std::vector<int> zeroStages(const Constraints &constraints, const Setting &setting) {
  if (constraints.zero) return {*constraints.zero};
  if (setting.zeroWays() <= 1) return {0};
  return {0, 1, 2, 3};
}

bool sameMesh(const Setting &a, const Setting &b) { return a.dp == b.dp && a.fsdp == b.fsdp && a.tp == b.tp; }

void record(Outcome &outcome, Solution solution) {
  if (!solution.assignment.fits) {
    if (!outcome.leastMemory || solution.bytes() < outcome.leastMemory->bytes())
      outcome.leastMemory = std::move(solution);
    return;
  }
  auto same = std::find_if(outcome.byMesh.begin(), outcome.byMesh.end(), [&](const Solution &other) {
    return sameMesh(other.model->setting, solution.model->setting);
  });
  if (same == outcome.byMesh.end())
    outcome.byMesh.push_back(solution);
  else if (solution.seconds() < same->seconds())
    *same = solution;
  if (!outcome.best || solution.seconds() < outcome.best->seconds()) outcome.best = std::move(solution);
}

} // namespace

namespace {

// Stages as the person asked for, or runs of units of about equal FLOPs.
Result<std::vector<int>> stageStarts(const Problem &problem, const ProblemFacts &facts, const Constraints &constraints,
                                     const Setting &setting) {
  std::vector<Unit> units = findUnits(problem, facts.repeats);
  Result<std::vector<int>> starts = pinnedStageStarts(problem, units, constraints);
  if (!starts || !starts->empty()) return starts;
  Result<ScheduleShape> shape = scheduleShape(setting.schedule, int(setting.pp));
  if (!shape) return shape.status();
  size_t stages = size_t(shape->stages);
  if (units.size() < stages)
    return {Status(ErrorKind::Usage,
                   fmt::format("the model has {} units, too few for {} pipeline stages", units.size(), stages))};
  double total = 0, before = 0;
  for (const Node &node : problem.nodes) total += node.flops;
  for (size_t u = 0; u < units.size(); ++u) {
    bool isDue = before >= total * double(starts->size()) / double(stages);
    bool isLastChance = units.size() - u <= stages - starts->size();
    if (starts->size() < stages && (isDue || isLastChance)) starts->push_back(units[u].first);
    for (int i = units[u].first; i < units[u].end; ++i) before += problem.nodes[size_t(i)].flops;
  }
  return starts;
}

} // namespace

double usableMemory(const Cluster &cluster) { return cluster.device.memoryBytes * constants::usableMemory; }

Outcome searchSettings(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                       const Constraints &constraints, const SearchOptions &options) {
  Outcome outcome;
  outcome.bound = std::numeric_limits<double>::infinity();
  if (constraints.microbatches && problem.batch % *constraints.microbatches != 0) {
    outcome.reason = {ErrorKind::Usage, fmt::format("{} microbatches do not divide the batch of {}",
                                                    *constraints.microbatches, problem.batch)};
    return outcome;
  }
  std::vector<Setting> settings = shapes(problem, cluster, constraints, true);
  if (settings.empty()) {
    settings = shapes(problem, cluster, constraints, false);
    outcome.notes.push_back(
        fmt::format("the batch of {} does not divide over the batch axes of any mesh allowed: the sample dimension is "
                    "left whole and every data parallel device computes all of it",
                    problem.batch));
  }
  if (settings.empty()) {
    outcome.reason = {ErrorKind::Usage, fmt::format("no mesh of all {} devices of {} satisfies: {}",
                                                    cluster.numDevices(), cluster.name, constraints.str())};
    return outcome;
  }
  double limit = usableMemory(cluster);
  std::vector<Recompute> recompute = recomputations(constraints, options, !facts.repeats.empty());
  for (const Setting &shape : settings) {
    Result<SplitModel> built = buildModel(problem, facts, cluster, constraints, shape);
    if (!built) {
      outcome.reason = built.status();
      continue;
    }
    // Within one mesh, more microbatches only help memory: compare with the best of this mesh, so that the table of
    // alternatives has the best of every mesh.
    double incumbent = std::numeric_limits<double>::infinity();
    for (const Solution &solution : outcome.byMesh)
      if (sameMesh(solution.model->setting, shape)) incumbent = solution.seconds();
    double floor = InnerProblem::computeBound(*built);
    if (floor >= incumbent || (outcome.best && floor >= 4 * outcome.best->seconds())) {
      outcome.bound = std::min(outcome.bound, floor);
      continue;
    }
    for (Recompute how : recompute)
      for (int zero : zeroStages(constraints, shape)) {
        auto model = std::make_shared<SplitModel>(*built);
        model->setting.zero = zero;
        model->setting.recompute = how;
        ++outcome.candidates;
        Result<Assignment> assignment = InnerProblem(*model, 0).solve(limit, incumbent);
        if (!assignment) {
          outcome.reason = assignment.status();
          continue;
        }
        if (assignment->fits || assignment->isPruned) outcome.bound = std::min(outcome.bound, assignment->bound);
        if (assignment->isPruned) continue;
        if (assignment->fits) incumbent = std::min(incumbent, assignment->evaluation.predicted.stepSeconds);
        Solution solution{std::move(model), std::move(*assignment), {0}};
        if (shape.pp > 1) {
          Result<std::vector<int>> starts = stageStarts(problem, facts, constraints, shape);
          if (!starts) {
            outcome.reason = starts.status();
            return outcome;
          }
          solution.stageStarts = *starts;
        }
        record(outcome, std::move(solution));
      }
  }
  std::sort(outcome.byMesh.begin(), outcome.byMesh.end(),
            [](const Solution &a, const Solution &b) { return a.seconds() < b.seconds(); });
  return outcome;
}

Decision toDecision(const Problem &problem, const Solution &solution) {
  const SplitModel &model = *solution.model;
  const Setting &setting = model.setting;
  const std::vector<int> &choice = solution.assignment.choice;
  Decision decision;
  decision.mesh = setting.mesh();
  decision.batchAxes = setting.batchAxes();
  decision.zeroAxes = setting.zeroAxes();
  decision.zero = setting.zero;
  decision.microbatches = setting.microbatches;
  decision.recompute = setting.recompute;
  decision.schedule = setting.schedule;
  decision.stages = std::max(1, int(solution.stageStarts.size()));
  std::vector<int> stages = stagesOfNodes(problem, solution.stageStarts);
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    int variable = model.variableOfNode[i];
    const Candidate &chosen = model.variables[size_t(variable)].candidates[size_t(choice[size_t(variable)])];
    NodeDecision node{problem.nodes[i].name, dist::FactorSharding(problem.nodes[i].rule.factors.size()), {}};
    int64_t batchFactor = model.batchFactors[i];
    if (batchFactor >= 0) node.split[size_t(batchFactor)] = decision.batchAxes;
    if (chosen.factor >= 0) node.split[size_t(chosen.factor)] = {"tp"};
    if (chosen.passesPartial) node.passesPartial = {"tp"};
    node.stage = stages[i];
    node.recompute = setting.recompute;
    decision.nodes.push_back(std::move(node));
  }
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    const Tensor &tensor = problem.tensors[t];
    if (tensor.kind != TensorKind::Parameter) continue;
    int variable = model.variableOfTensor[t];
    Layout home = model.variables[size_t(variable)].homes[size_t(choice[size_t(variable)])];
    ParameterDecision parameter;
    parameter.name = tensor.name;
    dist::Sharding plain = dist::Sharding::replicated(tensor.dims.size());
    if (home >= 0) plain.dims[size_t(home)] = {"tp"};
    dist::Sharding split = plain;
    int64_t dim = zeroDimension(tensor, home, setting.tp, setting.zeroWays());
    // ZeRO shards are cut from the tensor parallel shard: tp stays the major axis of its dimension.
    if (dim >= 0)
      for (const std::string &axis : decision.zeroAxes) split.dims[size_t(dim)].push_back(axis);
    parameter.parameter = setting.zero >= 3 ? split : plain;
    parameter.gradient = setting.zero >= 2 ? split : plain;
    parameter.state = setting.zero >= 1 ? split : plain;
    decision.parameters.push_back(std::move(parameter));
  }
  decision.predicted = solution.assignment.evaluation.predicted;
  return decision;
}

} // namespace cleave::planner
