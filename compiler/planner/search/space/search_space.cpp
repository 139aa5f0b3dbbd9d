#include "compiler/planner/search/space/search_space.h"
#include "compiler/cluster/device_presets.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/search/space/found_plans.h"
#include "compiler/planner/search/space/settings.h"
#include <algorithm>
#include <fmt/format.h>

namespace cleave::planner {
namespace {

// With at most so many variables in all settings together, every one that may be the best is solved exactly. Orders of
// one mesh count once: all but the best few are left by the bound that they share.
constexpr size_t smallProblem = 10000;
// Pipelines of more operations whose split is open look only at the splits that are cut into stages.
constexpr ptrdiff_t fewOperations = 24;

// Settings that differ in more than the order of their axes; those that do not are next to each other.
size_t countMeshes(const std::vector<Setting> &settings) {
  auto differ = [](const Setting &a, const Setting &b) {
    return !sameMesh(a, b) || a.microbatches != b.microbatches || a.schedule != b.schedule;
  };
  size_t count = !settings.empty();
  for (size_t i = 1; i < settings.size(); ++i) count += differ(settings[i - 1], settings[i]);
  return count;
}

} // namespace

SearchSpace::SearchSpace(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                         const Constraints &constraints, const SearchOptions &options)
    : problem(problem), facts(facts), cluster(cluster), constraints(constraints), options(options),
      memoryLimit(cluster.device.usableBytes()) {}

Status SearchSpace::gather() {
  if (constraints.microbatches && problem.batch % *constraints.microbatches != 0)
    return {ErrorKind::Usage,
            fmt::format("{} microbatches do not divide the batch of {}", *constraints.microbatches, problem.batch)};
  settings = openSettings(problem, facts, cluster, constraints, true);
  if (settings.empty()) settings = openSettings(problem, facts, cluster, constraints, false);
  if (settings.empty())
    return {ErrorKind::Usage,
            cluster.numDevices() == 1
                ? fmt::format("{} has one device, and this asks for several: {}", cluster.name, constraints.str())
                : fmt::format("no mesh of all {} devices of {} satisfies: {}", cluster.numDevices(), cluster.name,
                              constraints.str())};
  if (!settings[0].batchDivides && !constraints.acceptsRepeatedWork) {
    const std::string devices = constraints.dp ? fmt::format("over dp={}", settings[0].dp * settings[0].fsdp)
                                               : "over the data parallel devices of any mesh allowed";
    return {ErrorKind::NoFit,
            fmt::format("the batch of {} does not divide {}, so that each device would compute all of "
                        "it (--allow-repeated-work compiles it nevertheless)",
                        problem.batch, devices)};
  }
  meshes = countMeshes(settings);
  const std::vector<Unit> &units = facts.structure->layout->units;
  Result<std::vector<int>> starts = pinnedStageStarts(problem, units, constraints);
  if (!starts) return starts.status();
  for (int start : *starts)
    for (size_t u = 0; u < units.size(); ++u)
      if (units[u].first == start) pinnedUnits.push_back(int(u));
  return Status::ok();
}

bool SearchSpace::isSmall() const { return meshes * facts.structure->variables.size() <= smallProblem; }

ptrdiff_t SearchSpace::openOperations(const SplitModel &model) {
  return std::ranges::count_if(model.variables, [](const Variable &variable) { return variable.domain() > 1; });
}

bool SearchSpace::coversAllSplits(const SplitModel &model) const {
  const ptrdiff_t count = openOperations(model);
  return isSmall() && count > 0 && count <= fewOperations;
}

const ScheduleShape *SearchSpace::shapeOf(const Setting &setting) const {
  return setting.pp == 1 ? nullptr : knownShape(setting.schedule, setting.pp);
}

const ScheduleProfile *SearchSpace::profileOf(const Setting &setting) const {
  return setting.pp == 1 ? nullptr : scheduleProfile(setting.schedule, setting.pp, setting.microbatches);
}

bool SearchSpace::isOpen(const Setting &setting) const {
  const ScheduleProfile *profile = profileOf(setting);
  if (!profile || profile->stages > int(facts.structure->layout->units.size())) return false;
  return constraints.stages() <= 1 || profile->stages == constraints.stages();
}

Status SearchSpace::refusalOf(const Setting &setting) const {
  if (setting.pp == 1) return Status::ok();
  for (const Setting &other : settings)
    if (other.pp == setting.pp && other.schedule == setting.schedule && other.microbatches > setting.microbatches)
      return Status::ok();
  return makeSchedule(setting.schedule, int(setting.pp), setting.microbatches, {}).status();
}

double SearchSpace::stepBound(const Setting &setting, double seconds) const {
  const ScheduleShape *shape = shapeOf(setting);
  if (setting.pp > 1 && !shape) return infinity;
  const double passes = seconds * double(setting.microbatches);
  if (!shape) return passes;
  return leastOnSharedCores(cluster.device, setting.pp, leastOfAnyCut(*shape, setting.microbatches, seconds),
                            passes / double(setting.pp));
}

std::vector<Recompute> SearchSpace::openWays() const {
  return openRecomputation(constraints, facts.structure->segments);
}

Result<GivenRecomputation> SearchSpace::givenRecomputation(const Setting &setting) const {
  const std::vector<Recompute> &given = constraints.recomputeOf;
  GivenRecomputation result;
  if (given.empty()) return result;
  const std::vector<Unit> &units = facts.structure->layout->units;
  const ScheduleShape *shape = shapeOf(setting);
  size_t stages = shape ? size_t(shape->stages) : 1;
  auto isBlock = [](const Unit &unit) { return unit.isBlock; };
  size_t blocks = size_t(std::count_if(units.begin(), units.end(), isBlock));
  if (given.size() == stages) {
    result.ofStage = given;
    return result;
  }
  if (given.size() != blocks)
    return {Status(ErrorKind::Usage,
                   fmt::format("--recompute has {} entries: give one, or one for each of the {} stages or of the "
                               "{} repeated blocks of {}",
                               given.size(), stages, blocks, problem.name.empty() ? "the model" : problem.name))};
  size_t next = 0;
  for (const Unit &unit : units) result.ofUnit.push_back(unit.isBlock ? given[next++] : Recompute::None);
  return result;
}

StageProblem SearchSpace::stagesOf(const SplitModel &model, const ActivityCosts &activity,
                                   const StateCosts &state) const {
  std::vector<Recompute> ways = openWays();
  StageProblem stages{&model, &activity, &state, profileOf(model.setting), memoryLimit, {}, ways, {}, {}, pinnedUnits};
  if (Result<GivenRecomputation> given = givenRecomputation(model.setting)) { // else it has been refused
    stages.ofStage = std::move(given->ofStage);
    stages.ofUnit = std::move(given->ofUnit);
  }
  if (ways.size() == 1) stages.recompute = ways.front();
  if (pinnedUnits.empty()) stages.firstUnits = evenChunks(stages);
  return stages;
}

Status SearchSpace::whyNothing() const {
  size_t units = facts.structure->layout->units.size();
  std::string asked;
  if (constraints.pp && constraints.schedule) {
    const int64_t most = constraints.microbatches.value_or(problem.batch);
    Result<PipelineSchedule> table = makeSchedule(*constraints.schedule, int(*constraints.pp), most, {});
    if (!table) {
      const char *advice = constraints.microbatches ? "choose another --microbatches, --schedule or --mesh pp"
                                                    : "the batch has no more samples: choose another --schedule or "
                                                      "--mesh pp, or a larger batch";
      return {ErrorKind::Usage, fmt::format("{}; {}", table.status().message(), advice)};
    }
  }
  if (constraints.pp) {
    Result<ScheduleShape> shape = scheduleShape(constraints.schedule.value_or("1f1b"), int(*constraints.pp));
    if (shape)
      asked = fmt::format(", --mesh pp={} asks for {}{}", *constraints.pp, shape->stages,
                          constraints.schedule ? " with --schedule " + *constraints.schedule : "");
  }
  return {ErrorKind::Usage,
          fmt::format("{} can be cut into at most {} pipeline stages, an operation with a weight that is not frozen in "
                      "each{}",
                      problem.name.empty() ? "the model" : problem.name, units, asked)};
}

} // namespace cleave::planner
