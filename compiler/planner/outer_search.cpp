#include "compiler/planner/outer_search.h"
#include "compiler/planner/cells.h"
#include "compiler/planner/device_presets.h"
#include "compiler/planner/mixed_zero.h"
#include "compiler/planner/plan_improvement.h"
#include "compiler/planner/settings.h"
#include "compiler/planner/split_candidates.h"
#include "compiler/planner/stage_bound.h"
#include "compiler/planner/whole_units.h"
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <limits>
#include <queue>
#include <set>

namespace cleave::planner {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
// With at most so many variables in all settings together, every one that may be the best is solved exactly. Orders of
// one mesh count once: all but the best few are left by the bound that they share.
constexpr size_t smallProblem = 10000;
// Of pipelines of more operations whose split is open, only the splits that are cut into stages are looked at.
constexpr ptrdiff_t fewOperations = 24;
// Of larger ones the best few are solved again with their own prices.
constexpr int64_t mostRefinements = 6;
// Pipelines that are solved again, of so many meshes that are no slower than this; bounds of their cuts are made
// tighter up to a part of the best plan's time, with so many linear programs each.
constexpr size_t mostPipelines = 3;
constexpr double worthRefining = 1.05;
constexpr double certifiedPart = 0.995;
constexpr int mostPrograms = 60;
constexpr const char *followingSchedules[] = {"zb-1p", "zb-2p"};
// ZeRO stages are mixed on so many meshes.
constexpr size_t mostMixed = 3;
// The plans found are improved by pricing as many changes of each as make this many variables and microbatches.
constexpr double improvementWork = 2e5;
// Others that are not so slow are worth showing beside the best.
constexpr double worthImproving = 1.25;
// Plans whose formula is within this of the best are simulated.
constexpr double worthSimulating = 1.03;

bool sameMesh(const Setting &a, const Setting &b) {
  return a.pp == b.pp && a.dp == b.dp && a.fsdp == b.fsdp && a.cp == b.cp && a.ep == b.ep && a.tp == b.tp;
}

// Settings that differ in more than the order of their axes; those that do not are next to each other.
size_t countMeshes(const std::vector<Setting> &settings) {
  auto differ = [](const Setting &a, const Setting &b) {
    return !sameMesh(a, b) || a.microbatches != b.microbatches || a.schedule != b.schedule;
  };
  size_t count = !settings.empty();
  for (size_t i = 1; i < settings.size(); ++i) count += differ(settings[i - 1], settings[i]);
  return count;
}

class OuterSearch {
public:
  OuterSearch(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster, const Constraints &constraints,
              const SearchOptions &options)
      : problem(problem), facts(facts), cluster(cluster), constraints(constraints), options(options),
        cells(problem, facts, cluster, constraints), limit(usableMemory(cluster)) {
    outcome.bound = infinity;
  }

  Outcome run() {
    if (!collectSettings() || !findPinnedStages()) return std::move(outcome);
    start = std::chrono::steady_clock::now();
    while (!queue.empty()) {
      Entry entry = queue.top();
      queue.pop();
      if (entry.bound >= worthTrying()) {
        outcome.bound = std::min(outcome.bound, entry.bound);
        break;
      }
      double elapsed = secondsSinceStart();
      tellProgress(elapsed, entry.bound);
      const bool hasAny = outcome.best || outcome.leastMemory || options.worth < infinity;
      if (options.seconds > 0 && elapsed > options.seconds && hasAny) {
        outcome.bound = std::min(outcome.bound, entry.bound);
        outcome.isComplete = false;
        outcome.notes.push_back(
            fmt::format("the search was stopped after {:.1f} s; settings are left that may be up to "
                        "{:.1f} % faster",
                        elapsed, outcome.best ? 100 * std::max(0.0, 1 - entry.bound / incumbent()) : 100.0));
        break;
      }
      advance(entry);
    }
    refinePipelines();
    if (outcome.best) refineBest();
    if (outcome.best) {
      if (options.certified) certify();
      for (const OpenPlan &plan : open) outcome.bound = std::min(outcome.bound, plan.bound);
      tryFollowingSchedules();
    }
    if (outcome.best) improveBest();
    outcome.bound = std::min(outcome.bound, incumbent());
    sayWhyNothing();
    std::sort(outcome.byMesh.begin(), outcome.byMesh.end(),
              [](const Solution &a, const Solution &b) { return a.seconds() < b.seconds(); });
    return std::move(outcome);
  }

private:
  // A setting that may still be the best: first with the bound of its FLOPs, then of its cell's compute, then of its
  // cell's solution.
  struct Entry {
    double bound = 0;
    size_t setting = 0;
    enum Known : uint8_t { Flops, Compute, Solved } known = Flops;
    bool operator<(const Entry &other) const { // the smallest bound on top; in order where equal
      return std::pair(bound, setting) > std::pair(other.bound, other.setting);
    }
  };

  // Shardings of a setting that may be faster than the best plan, cut and recomputed otherwise than was tried.
  struct OpenPlan {
    double bound = 0;
    Setting setting;
    const Cell *cell = nullptr;
    size_t variant = 0;
  };

  double incumbent() const { return outcome.best ? std::min(outcome.best->seconds(), options.worth) : options.worth; }

  // A setting that cannot be faster than this is of no use: the best plan so far, or the last runner-up asked for.
  double worthTrying() const {
    if (options.top <= 0) return incumbent();
    std::vector<double> seconds;
    for (const Solution &solution : outcome.byMesh) seconds.push_back(solution.seconds());
    if (int64_t(seconds.size()) <= options.top) return infinity;
    std::nth_element(seconds.begin(), seconds.begin() + options.top, seconds.end());
    return seconds[size_t(options.top)];
  }

  double secondsSinceStart() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void tellProgress(double elapsed, double bound) {
    constexpr double interval = 0.1;
    if (!options.progress || elapsed < told + interval) return;
    told = elapsed;
    options.progress({elapsed, outcome.best ? incumbent() : 0, std::min(outcome.bound, bound), outcome.candidates,
                      queue.size() + 1});
  }

  bool collectSettings() {
    if (constraints.microbatches && problem.batch % *constraints.microbatches != 0) {
      outcome.reason = {ErrorKind::Usage, fmt::format("{} microbatches do not divide the batch of {}",
                                                      *constraints.microbatches, problem.batch)};
      return false;
    }
    settings = openSettings(problem, facts, cluster, constraints, true);
    if (options.undivided > 0)
      std::erase_if(settings, [&](const Setting &setting) {
        return options.undivided % (setting.batchWays() * setting.microbatches) == 0;
      });
    if (settings.empty() && options.undivided == 0) {
      settings = openSettings(problem, facts, cluster, constraints, false);
      outcome.notes.push_back(
          fmt::format("the batch of {} does not divide over the batch axes of any mesh allowed: the sample dimension "
                      "is left whole and every data parallel device computes all of it",
                      problem.batch));
    }
    if (settings.empty()) {
      outcome.reason = {ErrorKind::Usage, fmt::format("no mesh of all {} devices of {} satisfies: {}",
                                                      cluster.numDevices(), cluster.name, constraints.str())};
      return false;
    }
    meshes = countMeshes(settings);
    double peak = cluster.device.flopsAt(problem.precision);
    double flops = facts.structure->layout->heavyFlops * double(problem.batch) / double(problem.samples);
    for (size_t i = 0; i < settings.size(); ++i) {
      // A microbatch through the whole model, on the devices of one stage at their peak.
      const Setting &setting = settings[i];
      double ways = double(setting.batchWays() * setting.tp * setting.cp * setting.microbatches);
      for (const LaidAxis &axis : setting.laidAxes()) ways *= double(axis.size);
      queue.push({stepBound(setting, flops / ways / peak), i, Entry::Flops});
    }
    return true;
  }

  bool findPinnedStages() {
    const std::vector<Unit> &units = facts.structure->layout->units;
    Result<std::vector<int>> starts = pinnedStageStarts(problem, units, constraints);
    if (!starts) {
      outcome.reason = starts.status();
      return false;
    }
    for (int start : *starts)
      for (size_t u = 0; u < units.size(); ++u)
        if (units[u].first == start) pinnedUnits.push_back(int(u));
    return true;
  }

  const ScheduleProfile *profileOf(const Setting &setting) const {
    return setting.pp == 1 ? nullptr : scheduleProfile(setting.schedule, setting.pp, setting.microbatches);
  }

  // `seconds`: one microbatch through the whole model.
  double stepBound(const Setting &setting, double seconds) const {
    const ScheduleProfile *profile = profileOf(setting);
    if (setting.pp > 1 && !profile) return infinity;
    return profile ? leastOfAnyCut(*profile, setting.microbatches, seconds) : seconds * double(setting.microbatches);
  }

  void advance(Entry entry) {
    const Setting &setting = settings[entry.setting];
    if (entry.known == Entry::Solved) {
      Cell &cell = cells.at(setting);
      cells.solve(cell); // if it was another's that is known
      const double bound = stepBound(setting, cell.secondsBound);
      if (bound <= entry.bound) return tryPlans(setting, cell, entry.bound);
      entry.bound = bound;
      if (!cell.reason) outcome.reason = cell.reason;
      if (bound < infinity) queue.push(entry);
      return;
    }
    Cell &cell = cells.at(withoutFar(setting));
    if (entry.known == Entry::Compute) cells.solve(cell);
    if (!cell.reason) outcome.reason = cell.reason;
    entry.bound = std::max(entry.bound, stepBound(setting, cell.secondsBound));
    entry.known = entry.known == Entry::Flops ? Entry::Compute : Entry::Solved;
    if (entry.bound < infinity) queue.push(entry);
  }

  // The same in the usual order, where nothing that a microbatch waits for is slower: for a bound that many orders
  // share.
  Setting withoutFar(const Setting &setting) const {
    Setting usual = setting;
    usual.order = usualOrder;
    Placement of = microbatchPlacement(cluster, usual);
    return isNoSlower(cluster, of, microbatchPlacement(cluster, setting)) ? usual : setting;
  }

  void tryPlans(const Setting &setting, Cell &cell, double known) {
    double bound = infinity;
    SplitModel model = cells.modelFor(cell, setting);
    std::vector<Recompute> ways = openWays();
    bool isUniform = ways.size() == 1;
    std::vector<Recompute> ofStage, ofUnit;
    if (!readRecomputation(setting, ofStage, ofUnit)) return;
    const bool isSettled = setting.pp > 1 ? coversAllSplits(model) : isSmall();
    outcome.boundsAllSplits = outcome.boundsAllSplits && isSettled;
    const std::vector<int> zeros = openZeroStages(constraints, setting);
    bool isAnyTight = false;
    for (int zero : zeros) {
      model.setting.zero = zero;
      double least = infinity;
      for (size_t v = 0; v < cell.variants.size(); ++v) {
        std::vector<int> choice = cell.variants[v].choice;
        StateCosts state = costState(model, choice);
        StageProblem stages{
            &model,     &cells.activityOf(cell, v, model), &state, profileOf(setting), limit, {}, ways, ofStage, ofUnit,
            pinnedUnits};
        if (pinnedUnits.empty()) stages.firstUnits = evenChunks(stages);
        if (isUniform) stages.recompute = ways.front();
        bool isTight = false; // the fastest variant recomputes, or does not fit: leaner ones may be better
        double cheap = tryPlan(stages, choice, cell.isExact, isTight);
        least = std::min(least, cheap);
        if (!isSettled && cheap < worthTrying()) open.push_back({cheap, model.setting, &cell, v});
        isAnyTight = isAnyTight || isTight || cheap == infinity; // no room at this stage for all: a mix may have it
        if (isTight && v == 0) cells.addLeaner(cell);
      }
      if (setting.pp == 1 && isSmall() && constraints.recomputeOf.empty()) {
        double exact = solveExactly(model, ways);
        least = isUniform ? exact : std::max(std::min(least, exact), leastOfAnyMemory(model));
      }
      bound = std::min(bound, least);
    }
    // Where memory decides, stages may be mixed.
    if (setting.pp == 1 && isSettled && isAnyTight && zeros.size() > 1)
      bound = std::min(bound, leastOfAnyZero(model, ways));
    if (isSettled) outcome.bound = std::min(outcome.bound, setting.pp > 1 ? known : bound);
  }

  // Returns a bound of the setting with these shardings.
  double tryPlan(const StageProblem &stages, const std::vector<int> &choice, bool isExact, bool &isTight) {
    ++outcome.candidates;
    std::optional<StagePlan> plan =
        planStages(stages, std::min(incumbentOf(stages.model->setting), worthImproving * worthTrying()));
    if (!plan) return infinity;
    if (plan->isPruned) {
      isTight = plan->isTight;
      return plan->bound;
    }
    isTight = !plan->fits || (!stages.recompute && std::ranges::any_of(plan->recompute, [&](Recompute how) {
      return how != stages.allowed.front();
    }));
    consider(stages, choice, isExact, *plan);
    return plan->bound;
  }

  // Simulates a plan that may be the best of its mesh, or the one that needs least memory while nothing fits.
  void consider(const StageProblem &stages, const std::vector<int> &choice, bool isExact, const StagePlan &plan) {
    // What is no candidate for the best plan has to be faster than its mesh's best by the formula already.
    const bool isRunnerUp = plan.seconds >= worthSimulating * worthTrying();
    const double worth = isSmall() ? worthImproving : isRunnerUp ? 1 : worthSimulating;
    if (plan.fits && plan.seconds >= worth * incumbentOf(stages.model->setting)) return;
    bool isLeaner = !outcome.leastMemory || plan.bytes < outcome.leastMemory->plan.bytes;
    if (!plan.fits && (outcome.best || !isLeaner)) return;
    if (plan.fits && plan.bound >= worthTrying() && plan.seconds >= worthImproving * worthTrying()) return;
    Solution solution{std::make_shared<SplitModel>(*stages.model), choice, plan, {}, isExact};
    solution.evaluation = evaluatePlan(stages, plan);
    // What the schedule as simulated holds more than the formula of the cut is left free.
    StageProblem tighter = stages;
    tighter.firstUnits = plan.firstUnits;
    for (int round = 0; round < 4 && solution.plan.fits && !solution.evaluation.fits; ++round) {
      tighter.memoryLimit -= (solution.bytes() - stages.memoryLimit) * (1 + 1e-9);
      std::optional<StagePlan> leaner = planStages(tighter);
      if (!leaner) break;
      solution.plan = std::move(*leaner);
      solution.evaluation = evaluatePlan(stages, solution.plan);
    }
    record(std::move(solution));
  }

  // The best pipelines once more: with shardings solved for their own setting, and with stages as unequal as they like,
  // at the cuts where bounds of all cuts have their least values.
  void refinePipelines() {
    for (const Solution &solution : bestPipelines()) {
      if (isLate()) break;
      const Setting setting = solution.model->setting;
      Cells own(problem, facts, cluster, constraints);
      Cell &cell = own.at(setting);
      own.solve(cell);
      SplitModel model = own.modelFor(cell, setting);
      bool isTight = false;
      for (size_t v = 0; v < cell.variants.size(); ++v) {
        const std::vector<int> choice = cell.variants[v].choice;
        StateCosts state = costState(model, choice);
        tryPlan(stagesOf(model, own.activityOf(cell, v, model), state), choice, cell.isExact, isTight);
        if (isTight && v == 0) own.addLeaner(cell);
      }
      const Solution *now = bestOf(setting);
      if (now->model->setting.schedule == setting.schedule) refineCuts(*now);
    }
  }

  // Of meshes with stages that are no slower than is worth refining, and the runners-up asked for; the fastest first.
  std::vector<Solution> bestPipelines() const {
    std::vector<Solution> pipelines = outcome.byMesh;
    std::erase_if(pipelines, [](const Solution &solution) { return solution.model->setting.pp == 1; });
    std::sort(pipelines.begin(), pipelines.end(),
              [](const Solution &a, const Solution &b) { return a.seconds() < b.seconds(); });
    const size_t asked = options.top > 0 ? size_t(options.top) + 1 : 0; // the best, and runners-up
    const size_t most = std::max(options.certified ? mostPipelines : 1, asked);
    if (pipelines.size() > most) pipelines.resize(most);
    while (pipelines.size() > asked && pipelines.back().seconds() > worthRefining * incumbent()) pipelines.pop_back();
    return pipelines;
  }

  // The best pipelines, with as many microbatches as they like, with the schedules whose tables follow the stages'
  // times: there is none before there are stages, so that they have no bound.
  void tryFollowingSchedules() {
    if (constraints.schedule || !constraints.like.empty()) return;
    for (const Solution &solution : bestPipelines())
      for (const char *kind : followingSchedules) {
        for (Setting setting : settings) {
          if (!sameMesh(setting, solution.model->setting) || setting.order != solution.model->setting.order) continue;
          if (setting.schedule != "1f1b" || isLate()) continue; // one of each microbatch count
          setting.schedule = kind;
          Cell &cell = cells.at(setting);
          cells.solve(cell);
          if (isOpen(setting) && stepBound(setting, cell.secondsBound) < worthTrying())
            tryPlans(setting, cell, infinity);
        }
        SplitModel model = *solution.model;
        model.setting.schedule = kind;
        if (!isOpen(model.setting)) continue;
        ActivityCosts activity = costActivity(model, solution.choice);
        StateCosts state = costState(model, solution.choice);
        const StageProblem stages = stagesOf(model, activity, state);
        std::vector<TimedCut> cuts; // all, where they are few, or that of the pipeline
        if (int(solution.plan.firstUnits.size()) == stages.stages()) cuts.push_back({solution.plan.firstUnits});
        tryCuts(stages, solution.choice, solution.isExact, timeEachCut(stages, worthTrying()).value_or(cuts));
      }
  }

  // Has the schedule such a table, with the stages that are asked for?
  bool isOpen(const Setting &setting) const {
    const ScheduleProfile *profile = profileOf(setting);
    if (!profile || profile->stages > int(facts.structure->layout->units.size())) return false;
    return constraints.stages() <= 1 || profile->stages == constraints.stages();
  }

  // Sharper bounds of the settings tried that might be faster than the best plan, until none might by more than
  // 1 - certifiedPart: first that units are whole; then paths through their schedules, which cost more.
  void certify() {
    double goal = certifiedPart * slowestAsked(), least = infinity;
    for (OpenPlan &plan : open) {
      if (plan.bound >= goal || isLate()) continue;
      withStages(plan, [&](const StageProblem &stages, const std::vector<int> &) {
        plan.bound = std::max(plan.bound, boundOfWholeUnits(stages, goal));
      });
    }
    std::stable_sort(open.begin(), open.end(), [](const OpenPlan &a, const OpenPlan &b) { return a.bound < b.bound; });
    for (OpenPlan &plan : open) {
      if (plan.bound >= goal || isLate()) break;
      withStages(plan, [&](const StageProblem &stages, const std::vector<int> &choice) {
        StageBound bound = boundStages(stages, slowestAsked(), mostPrograms, goal);
        plan.bound = std::max(plan.bound, bound.seconds);
        tryCuts(stages, choice, plan.cell->isExact, bound.cuts);
      });
      // Nothing is gained by refuting what another plan might be anyway.
      goal = certifiedPart * slowestAsked();
      least = std::min(least, plan.bound);
      if (options.top <= 0) goal = std::min(goal, least);
    }
  }

  // The best plan's seconds, or the last runner-up's that is wanted and known.
  double slowestAsked() const {
    double worth = worthTrying();
    if (worth < infinity) return worth;
    for (const Solution &solution : outcome.byMesh) worth = std::max(worth < infinity ? worth : 0, solution.seconds());
    return worth;
  }

  void withStages(const OpenPlan &plan,
                  const std::function<void(const StageProblem &, const std::vector<int> &)> &use) {
    SplitModel model = cells.modelFor(*plan.cell, plan.setting);
    const CellVariant &variant = plan.cell->variants[plan.variant];
    ActivityCosts activity = costActivity(model, variant.choice);
    StateCosts state = costState(model, variant.choice);
    StageProblem stages = stagesOf(model, activity, state);
    use(stages, variant.choice);
  }

  void refineCuts(const Solution given) {
    const SplitModel &model = *given.model;
    ActivityCosts activity = costActivity(model, given.choice);
    StateCosts state = costState(model, given.choice);
    StageProblem stages = stagesOf(model, activity, state);
    StageBound bound = boundStages(stages, incumbent(), mostPrograms, certifiedPart * incumbent());
    tryCuts(stages, given.choice, given.isExact, bound.cuts);
  }

  void tryCuts(const StageProblem &stages, const std::vector<int> &choice, bool isExact,
               const std::vector<TimedCut> &cuts) {
    if (!stages.firstUnits.empty()) return;
    for (const TimedCut &cut : cuts) {
      StagePlan plan = planCut(stages, cut.firstUnits);
      if (cut.fits) plan.seconds = cut.seconds; // the formula knows little of uneven chunks
      consider(stages, choice, isExact, plan);
    }
  }

  StageProblem stagesOf(const SplitModel &model, const ActivityCosts &activity, const StateCosts &state) {
    std::vector<Recompute> ways = openWays();
    StageProblem stages{&model, &activity, &state, profileOf(model.setting), limit, {}, ways, {}, {}, pinnedUnits};
    readRecomputation(model.setting, stages.ofStage, stages.ofUnit); // has been read before
    if (ways.size() == 1) stages.recompute = ways.front();
    if (pinnedUnits.empty()) stages.firstUnits = evenChunks(stages);
    return stages;
  }

  const Solution *bestOf(const Setting &setting) const {
    for (const Solution &solution : outcome.byMesh)
      if (sameMesh(solution.model->setting, setting)) return &solution;
    return nullptr;
  }

  bool isLate() const { return options.seconds > 0 && secondsSinceStart() > options.seconds; }

  // Without pipeline the inner problem knows the whole step: hidden reductions and the memory too. Returns a bound.
  double solveExactly(SplitModel &model, const std::vector<Recompute> &ways) {
    double least = infinity;
    for (Recompute how : ways) {
      model.setting.recompute = how;
      Result<Assignment> assignment = InnerProblem(model, 0).solve(limit, incumbent());
      if (!assignment) continue;
      least = std::min(least, std::max(assignment->bound, leastPassSeconds(model, how) + leastUpdateSeconds(model)));
      if (!assignment->isPruned) offer(model, *assignment, how);
    }
    model.setting.recompute = Recompute::None;
    return least;
  }

  // Whatever stage each parameter has, and whatever is computed again.
  double leastOfAnyZero(SplitModel model, const std::vector<Recompute> &ways) const {
    model.setting.zero = 0;
    model.setting.anyZero = true;
    double least = infinity;
    for (Recompute how : ways) {
      model.setting.recompute = how;
      Result<Assignment> assignment = InnerProblem(model, 0).solve(infinity, infinity);
      if (assignment) least = std::min(least, assignment->bound);
    }
    return least;
  }

  // Recomputation costs time only: nothing is faster than what keeps everything, if there were room for it.
  double leastOfAnyMemory(SplitModel &model) {
    model.setting.recompute = Recompute::None;
    Result<Assignment> assignment = InnerProblem(model, 0).solve(infinity, incumbent());
    return assignment ? assignment->bound : 0;
  }

  void offer(const SplitModel &model, const Assignment &assignment, Recompute how) {
    Solution solution{std::make_shared<SplitModel>(model), assignment.choice, {}, {}, assignment.isExact};
    ActivityCosts activity = costActivity(model, assignment.choice);
    StateCosts state = costState(model, assignment.choice);
    StageProblem stages{&model, &activity, &state, nullptr, limit, how, {}, {}, {}, pinnedUnits};
    std::optional<StagePlan> plan = planStages(stages);
    if (!plan) return;
    solution.plan = std::move(*plan);
    solution.evaluation = evaluatePlan(stages, solution.plan);
    record(std::move(solution));
  }

  // What the sum over operations that was minimised leaves out, of the best plan and of the runners-up asked for.
  void improveBest() {
    std::vector<Solution> found = std::move(outcome.byMesh);
    outcome.best.reset();
    outcome.byMesh.clear();
    std::sort(found.begin(), found.end(),
              [](const Solution &a, const Solution &b) { return a.seconds() < b.seconds(); });
    mixZeroStages(found);
    int64_t improved = 0;
    double best = found[0].seconds();
    for (Solution &solution : found) {
      const Setting &setting = solution.model->setting;
      bool isProven = solution.seconds() <= outcome.bound * (1 + 1e-9);
      // Of small problems also those that come close.
      bool isClose = isSmall() && solution.seconds() < worthImproving * best;
      if (!isProven && (improved++ <= options.top || isClose)) {
        StageProblem stages{&*solution.model, nullptr, nullptr, profileOf(setting), limit, {}, {}, {}, {}, {}};
        double work = double(setting.microbatches * setting.pp) + double(solution.choice.size());
        improvePlan(stages, solution.plan, int64_t(improvementWork / work), solution.choice, solution.evaluation);
      }
      record(std::move(solution));
    }
  }

  // ZeRO stages of their own for groups of parameters, of the best meshes; the fastest of them first.
  void mixZeroStages(std::vector<Solution> &found) {
    const double worth = worthImproving * found[0].seconds();
    size_t mixed = 0;
    for (Solution &solution : found) {
      const Setting setting = solution.model->setting;
      const std::vector<int> open = openZeroStages(constraints, setting);
      if (mixed >= mostMixed || solution.seconds() > worth || isLate()) break;
      if (open.size() == 1 || setting.offload != Offload::None || setting.grid != TensorGrid::None) continue;
      if (solution.seconds() <= outcome.bound * (1 + 1e-9)) continue;
      ++mixed;
      ActivityCosts activity = costActivity(*solution.model, solution.choice);
      const StateCosts uniform = costState(*solution.model, solution.choice);
      StageProblem stages = stagesOf(*solution.model, activity, uniform);
      const double work = double(setting.microbatches * setting.pp) + double(solution.choice.size());
      const std::shared_ptr<const SplitModel> before = solution.model;
      auto model = std::make_shared<SplitModel>(*before);
      mixZero(stages, open, solution.choice, int64_t(improvementWork / work), model, solution.plan,
              solution.evaluation);
      solution.model = std::move(model);
    }
    std::stable_sort(found.begin(), found.end(),
                     [](const Solution &a, const Solution &b) { return a.seconds() < b.seconds(); });
  }

  // With their own prices instead of their cell's.
  void refineBest() {
    if (isSmall() || !constraints.recomputeOf.empty()) return;
    std::vector<Solution> finalists = outcome.byMesh;
    std::sort(finalists.begin(), finalists.end(),
              [](const Solution &a, const Solution &b) { return a.seconds() < b.seconds(); });
    int64_t refined = 0;
    for (const Solution &solution : finalists) {
      if (isLate()) break;
      if (solution.model->setting.pp > 1 || ++refined > mostRefinements) continue;
      SplitModel model = *solution.model;
      for (Recompute how : openWays()) {
        model.setting.recompute = how;
        Result<Assignment> assignment = InnerProblem(model, 0).solve(limit, incumbent());
        if (assignment && !assignment->isPruned) offer(model, *assignment, how);
      }
    }
  }

  std::vector<Recompute> openWays() const { return openRecomputation(constraints, facts.structure->segments.any()); }

  // --recompute one by one: an entry a stage, else an entry a block. Says why it is neither.
  bool readRecomputation(const Setting &setting, std::vector<Recompute> &ofStage, std::vector<Recompute> &ofUnit) {
    const std::vector<Recompute> &given = constraints.recomputeOf;
    if (given.empty()) return true;
    const std::vector<Unit> &units = facts.structure->layout->units;
    const ScheduleProfile *profile = profileOf(setting);
    size_t stages = profile ? size_t(profile->stages) : 1;
    auto isBlock = [](const Unit &unit) { return unit.isBlock; };
    size_t blocks = size_t(std::count_if(units.begin(), units.end(), isBlock));
    if (given.size() == stages) {
      ofStage = given;
      return true;
    }
    if (given.size() != blocks) {
      outcome.reason = {ErrorKind::Usage,
                        fmt::format("--recompute has {} entries: give one, or one for each of the {} stages or of the "
                                    "{} repeated blocks of {}",
                                    given.size(), stages, blocks, problem.name.empty() ? "the model" : problem.name)};
      return false;
    }
    size_t next = 0;
    for (const Unit &unit : units) ofUnit.push_back(unit.isBlock ? given[next++] : Recompute::None);
    return true;
  }

  // Every setting that was open has been refused: the schedule cannot have its microbatches, or it has more stages than
  // the model has units.
  void sayWhyNothing() {
    if (outcome.best || outcome.leastMemory || !outcome.reason) return;
    size_t units = facts.structure->layout->units.size();
    std::string asked;
    if (constraints.pp && constraints.schedule) {
      const int64_t most = constraints.microbatches.value_or(problem.batch);
      Result<PipelineSchedule> table = makeSchedule(*constraints.schedule, int(*constraints.pp), most, {});
      if (!table) {
        const char *advice = constraints.microbatches ? "choose another --microbatches, --schedule or --mesh pp"
                                                      : "the batch has no more samples: choose another --schedule or "
                                                        "--mesh pp, or a larger batch";
        outcome.reason = {ErrorKind::Usage, fmt::format("{}; {}", table.status().message(), advice)};
        return;
      }
    }
    if (constraints.pp) {
      Result<ScheduleShape> shape = scheduleShape(constraints.schedule.value_or("1f1b"), int(*constraints.pp));
      if (shape)
        asked = fmt::format(", --mesh pp={} asks for {}{}", *constraints.pp, shape->stages,
                            constraints.schedule ? " with --schedule " + *constraints.schedule : "");
    }
    outcome.reason = {ErrorKind::Usage,
                      fmt::format("{} can be cut into at most {} pipeline stages, an operation with a weight in each{}",
                                  problem.name.empty() ? "the model" : problem.name, units, asked)};
  }

  // Of pipelines of a few operations: the bound holds for all splits, not only for those that were cut into stages.
  bool coversAllSplits(const SplitModel &model) const {
    auto isOpen = [](const Variable &variable) { return variable.domain() > 1; };
    const auto count = std::ranges::count_if(model.variables, isOpen);
    return isSmall() && count > 0 && count <= fewOperations;
  }

  bool isSmall() const { return meshes * facts.structure->variables.size() <= smallProblem; }

  double incumbentOf(const Setting &setting) const {
    const Solution *known = bestOf(setting);
    return known ? known->seconds() : infinity;
  }

  void record(Solution solution) {
    if (!solution.evaluation.fits) {
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

  const Problem &problem;
  const ProblemFacts &facts;
  const Cluster &cluster;
  const Constraints &constraints;
  const SearchOptions &options;
  Cells cells;
  double limit;
  std::vector<Setting> settings;
  size_t meshes = 0; // among them
  std::vector<int> pinnedUnits;
  std::priority_queue<Entry> queue;
  std::vector<OpenPlan> open;
  std::chrono::steady_clock::time_point start;
  double told = 0; // when progress was told last
  Outcome outcome;
};

} // namespace

double usableMemory(const Cluster &cluster) { return cluster.device.memoryBytes * constants::usableMemory; }

Outcome searchSettings(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                       const Constraints &constraints, const SearchOptions &options) {
  return OuterSearch(problem, facts, cluster, constraints, options).run();
}

} // namespace cleave::planner
