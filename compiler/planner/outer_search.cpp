#include "compiler/planner/outer_search.h"
#include "compiler/planner/cells.h"
#include "compiler/planner/mixed_zero.h"
#include "compiler/planner/pipeline_refinement.h"
#include "compiler/planner/plan_improvement.h"
#include "compiler/planner/setting_trials.h"
#include "compiler/planner/settings.h"
#include <algorithm>
#include <fmt/format.h>
#include <limits>
#include <queue>

namespace cleave::planner {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
// Without pipeline the best few are solved again with their own prices.
constexpr int64_t mostRefinements = 6;
// ZeRO stages are mixed on so many meshes.
constexpr size_t mostMixed = 3, mostLookedAt = 12; // of the fastest without
// The plans found are improved by pricing as many changes of each as make this many variables and microbatches.
constexpr double improvementWork = 2e5;

class OuterSearch {
public:
  OuterSearch(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster, const Constraints &constraints,
              const SearchOptions &options)
      : problem(problem), facts(facts), cluster(cluster), constraints(constraints), options(options),
        space(problem, facts, cluster, constraints, options), cells(problem, facts, cluster, constraints),
        found(options), trials(space, cells, found) {
    outcome.bound = infinity;
  }

  Outcome run() {
    outcome.reason = space.gather();
    outcome.notes = space.notes;
    if (!outcome.reason) return std::move(outcome);
    const Deadline deadline(options.seconds);
    queueSettings();
    trySettings(deadline);
    PipelineRefinement refinement(space, cells, found, trials, deadline);
    refinement.refine();
    if (found.best) refineBest(deadline);
    if (found.best) {
      if (options.certified) refinement.certify();
      for (const OpenPlan &plan : trials.open) outcome.bound = std::min(outcome.bound, plan.bound);
      refinement.tryFollowingSchedules();
    }
    outcome.bound = std::min(outcome.bound, trials.bound);
    if (found.best) improveBest(deadline);
    outcome.bound = std::min(outcome.bound, found.incumbent());
    outcome.boundsAllSplits = trials.boundsAllSplits;
    outcome.candidates = trials.candidates;
    if (!found.best && !found.leastMemory && outcome.reason) outcome.reason = space.whyNothing();
    outcome.byMesh = found.fastestFirst();
    outcome.best = std::move(found.best);
    outcome.leastMemory = std::move(found.leastMemory);
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

  void queueSettings() {
    double peak = cluster.device.flopsAt(problem.precision);
    double flops = facts.structure->layout->heavyFlops * double(problem.batch) / double(problem.samples);
    for (size_t i = 0; i < space.settings.size(); ++i) {
      // A microbatch through the whole model, on the devices of one stage at their peak.
      const Setting &setting = space.settings[i];
      double ways = double(setting.batchWays() * setting.tp * setting.cp * setting.microbatches);
      for (const LaidAxis &axis : setting.laidAxes()) ways *= double(axis.size);
      queue.push({space.stepBound(setting, flops / ways / peak), i, Entry::Flops});
    }
  }

  // The most promising first, until none can be faster than what was found.
  void trySettings(const Deadline &deadline) {
    while (!queue.empty()) {
      Entry entry = queue.top();
      queue.pop();
      if (entry.bound >= found.worthTrying()) {
        outcome.bound = std::min(outcome.bound, entry.bound);
        break;
      }
      double elapsed = deadline.elapsed();
      tellProgress(elapsed, entry.bound);
      const bool hasAny = found.best || found.leastMemory || options.worth < infinity;
      if (deadline.isOver() && hasAny) {
        outcome.bound = std::min(outcome.bound, entry.bound);
        outcome.isComplete = false;
        outcome.notes.push_back(
            fmt::format("the search was stopped after {:.1f} s; settings are left that may be up to "
                        "{:.1f} % faster",
                        elapsed, found.best ? 100 * std::max(0.0, 1 - entry.bound / found.incumbent()) : 100.0));
        break;
      }
      advance(entry);
    }
  }

  void tellProgress(double elapsed, double bound) {
    constexpr double interval = 0.1;
    if (!options.progress || elapsed < told + interval) return;
    told = elapsed;
    options.progress({elapsed, found.best ? found.incumbent() : 0, std::min({outcome.bound, trials.bound, bound}),
                      trials.candidates, queue.size() + 1});
  }

  void advance(Entry entry) {
    const Setting &setting = space.settings[entry.setting];
    if (entry.known == Entry::Solved) {
      Cell &cell = cells.at(setting);
      cells.solve(cell); // if it was another's that is known
      const double bound = space.stepBound(setting, cell.secondsBound);
      if (bound <= entry.bound) {
        if (Status tried = trials.trySetting(setting, cell, entry.bound); !tried) outcome.reason = tried;
        return;
      }
      entry.bound = bound;
      if (!cell.reason) outcome.reason = cell.reason;
      if (bound < infinity) queue.push(entry);
      return;
    }
    Cell &cell = cells.at(withoutFar(setting));
    if (entry.known == Entry::Compute) cells.solve(cell);
    if (!cell.reason) outcome.reason = cell.reason;
    entry.bound = std::max(entry.bound, space.stepBound(setting, cell.secondsBound));
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

  // With their own prices instead of their cell's.
  void refineBest(const Deadline &deadline) {
    if (space.isSmall() || !constraints.recomputeOf.empty()) return;
    int64_t refined = 0;
    for (const Solution &solution : found.fastestFirst()) {
      if (deadline.isOver()) break;
      if (solution.model->setting.pp > 1 || ++refined > mostRefinements) continue;
      SplitModel model = *solution.model;
      for (Recompute how : space.openWays()) {
        model.setting.recompute = how;
        Result<Assignment> assignment = InnerProblem(model, 0).solve(space.memoryLimit, found.incumbent());
        if (assignment && !assignment->isPruned) trials.offer(model, *assignment);
      }
    }
  }

  // What the sum over operations that was minimised leaves out, of the best plan and of the runners-up asked for.
  void improveBest(const Deadline &deadline) {
    std::vector<Solution> plans = found.fastestFirst();
    found.best.reset();
    found.byMesh.clear();
    mixZeroStages(plans, deadline);
    int64_t improved = 0;
    double best = plans[0].seconds();
    for (Solution &solution : plans) {
      const Setting &setting = solution.model->setting;
      bool isProven = solution.seconds() <= outcome.bound * (1 + 1e-9);
      // Of small problems also those that come close.
      bool isClose = space.isSmall() && solution.seconds() < worthImproving * best;
      if (!isProven && (improved++ <= options.top || isClose)) {
        StageProblem stages{
            &*solution.model, nullptr, nullptr, space.profileOf(setting), space.memoryLimit, {}, {}, {}, {}, {}};
        double work = double(setting.microbatches * setting.pp) + double(solution.choice.size());
        improvePlan(stages, solution.plan, int64_t(improvementWork / work), solution.choice, solution.evaluation);
      }
      found.record(std::move(solution));
    }
  }

  // ZeRO stages of their own for groups of parameters, of the meshes that might gain most; the fastest of all first.
  void mixZeroStages(std::vector<Solution> &plans, const Deadline &deadline) const {
    struct Candidate {
      Solution *solution;
      double seconds; // that a mix might take
    };
    std::vector<Candidate> candidates;
    for (Solution &solution : plans) {
      const Setting &setting = solution.model->setting;
      const std::vector<int> open = openZeroStages(constraints, setting);
      if (candidates.size() >= mostLookedAt || deadline.isOver()) break;
      if (open.size() == 1 || setting.offload != Offload::None || setting.grid != TensorGrid::None) continue;
      if (solution.seconds() <= outcome.bound * (1 + 1e-9)) continue;
      const ActivityCosts activity = costActivity(*solution.model, solution.choice);
      const StateCosts uniform = costState(*solution.model, solution.choice);
      const StageProblem stages = space.stagesOf(*solution.model, activity, uniform);
      const double seconds = secondsWithoutLimit(stages, open, solution.choice, solution.plan.firstUnits);
      if (seconds < solution.seconds() && seconds < worthImproving * plans[0].seconds())
        candidates.push_back({&solution, seconds});
    }
    std::ranges::stable_sort(candidates, {}, &Candidate::seconds);
    if (candidates.size() > mostMixed) candidates.resize(mostMixed);
    for (const Candidate &candidate : candidates) {
      if (deadline.isOver()) break;
      Solution &solution = *candidate.solution;
      const Setting setting = solution.model->setting;
      const ActivityCosts activity = costActivity(*solution.model, solution.choice);
      const StateCosts uniform = costState(*solution.model, solution.choice);
      const StageProblem stages = space.stagesOf(*solution.model, activity, uniform);
      const double work = double(setting.microbatches * setting.pp) + double(solution.choice.size());
      const std::shared_ptr<const SplitModel> before = solution.model;
      auto model = std::make_shared<SplitModel>(*before);
      mixZero(stages, openZeroStages(constraints, setting), solution.choice, int64_t(improvementWork / work), model,
              solution.plan, solution.evaluation);
      solution.model = std::move(model);
    }
    std::ranges::stable_sort(plans, {}, &Solution::seconds);
  }

  const Problem &problem;
  const ProblemFacts &facts;
  const Cluster &cluster;
  const Constraints &constraints;
  const SearchOptions &options;
  SearchSpace space;
  Cells cells;
  FoundPlans found;
  SettingTrials trials;
  std::priority_queue<Entry> queue;
  double told = 0; // when progress was told last
  Outcome outcome;
};

} // namespace

Outcome searchSettings(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                       const Constraints &constraints, const SearchOptions &options) {
  return OuterSearch(problem, facts, cluster, constraints, options).run();
}

} // namespace cleave::planner
