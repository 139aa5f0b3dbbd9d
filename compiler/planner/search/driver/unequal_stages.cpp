#include "compiler/planner/search/driver/unequal_stages.h"
#include "compiler/planner/search/space/cells.h"
#include "compiler/planner/search/space/search_space.h"
#include "compiler/planner/search/space/settings.h"
#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace cleave::planner {
namespace {

// Parts in which devices are handed out, stages, and tensor parallel ways that are looked at.
constexpr int64_t mostParts = 8, mostStages = 4, mostTensorWays = 8;
// The slowest stage is made as fast as it can be but for this part.
constexpr double closeEnough = 1e-3;
// Plans that are not so much slower than what they have to beat are improved.
constexpr double worthChoosing = 1.2;

} // namespace

std::string UnequalPlan::str() const {
  std::string devices, ways;
  for (const UnequalStage &stage : stages) {
    devices += fmt::format("{}{}", devices.empty() ? "" : "+", stage.devices);
    ways += fmt::format("{}{}", ways.empty() ? "" : "+", stage.tp);
  }
  return fmt::format("{} devices (tp {})", devices, ways);
}

struct UnequalPricing::Impl {
  const Problem &problem;
  const ProblemFacts &facts;
  const Cluster &cluster;
  Cells cells;
  std::vector<Recompute> ways;
  double limit;

  // A stage on so many devices in so many tensor parallel ways.
  struct Split {
    int64_t tp = 1;
    SplitModel model;
    StateCosts state;
    StageProblem stages; // as though all stages were split so
    std::optional<StageRoom> room;
    std::vector<double> onceBefore; // seconds once a step of the units before each, hidden or not
  };
  // By devices, microbatches, stages and ZeRO stage: in all ways that divide.
  std::map<std::tuple<int64_t, int64_t, int64_t, int>, std::vector<std::unique_ptr<Split>>> splits;

  const std::vector<std::unique_ptr<Split>> &splitsOf(const UnequalPlan &plan, int64_t devices) {
    const auto ranks = int64_t(plan.stages.size());
    auto [found, isNew] = splits.try_emplace({devices, plan.microbatches, ranks, plan.zero});
    const ScheduleProfile *profile = scheduleProfile("1f1b", ranks, plan.microbatches);
    if (!isNew || !profile) return found->second;
    for (int64_t tp : divisors(devices)) {
      if (tp > std::min(mostTensorWays, cluster.devicesPerNode)) break;
      Setting setting;
      setting.pp = ranks;
      setting.isOneOfUnequal = true;
      setting.tp = tp;
      setting.dp = devices / tp;
      setting.microbatches = plan.microbatches;
      setting.zero = setting.dp > 1 ? plan.zero : 0;
      setting.schedule = "1f1b";
      if (problem.batch / plan.microbatches % setting.dp != 0) continue;
      Cell &cell = cells.at(setting);
      cells.solve(cell);
      if (cell.variants.empty()) continue;
      auto split = std::make_unique<Split>();
      split->tp = tp;
      split->model = cells.modelFor(cell, setting);
      split->state = costState(split->model, cell.variants[0].choice);
      split->stages.model = &split->model;
      split->stages.activity = &cells.activityOf(cell, 0, split->model);
      split->stages.state = &split->state;
      split->stages.profile = profile;
      split->stages.memoryLimit = limit;
      split->stages.allowed = ways;
      if (ways.size() == 1) split->stages.recompute = ways.front();
      split->room.emplace(split->stages);
      split->onceBefore = {0};
      for (const Unit &unit : facts.structure->layout->units) {
        const UnitState &state = split->state.kinds[size_t(unit.kind)];
        split->onceBefore.push_back(split->onceBefore.back() + state.update + state.exposed + state.hideable);
      }
      found->second.push_back(std::move(split));
    }
    return found->second;
  }

  const Split *splitOf(const UnequalPlan &plan, const UnequalStage &stage) {
    for (const auto &split : splitsOf(plan, stage.devices))
      if (split->tp == stage.tp) return split.get();
    return nullptr;
  }

  // Cuts from the last stage on, each with as many units as one of its splits takes `slowest` seconds for at most;
  // `earliest(split, stage, end)` says where that begins. Of splits that take as many the one that has least to do once
  // a step. False where units are left.
  template <typename Earliest> bool cutFromTheEnd(UnequalPlan &plan, Earliest earliest) {
    int end = int(facts.structure->layout->units.size());
    for (size_t s = plan.stages.size(); s-- > 0;) {
      int start = end;
      double once = 0;
      for (const auto &split : splitsOf(plan, plan.stages[s].devices)) {
        const int one = earliest(*split, int(s), end);
        const double ofOne = split->onceBefore[size_t(end)] - split->onceBefore[size_t(one)];
        if (one == end || std::pair(one, ofOne) >= std::pair(start, once)) continue;
        start = one;
        once = ofOne;
        plan.stages[s].tp = split->tp;
      }
      if (start == end) return false;
      plan.stages[s].firstUnit = start;
      end = start;
    }
    return end == 0;
  }

  // Memory aside.
  bool cutByTime(UnequalPlan &plan, double slowest) {
    return cutFromTheEnd(plan, [&](const Split &split, int stage, int end) {
      const std::vector<double> &before = split.room->secondsBefore();
      const auto last = before.begin() + end;
      return std::max(stage,
                      int(std::lower_bound(before.begin(), last, before[size_t(end)] - slowest) - before.begin()));
    });
  }

  bool cutByMemory(UnequalPlan &plan, double slowest) {
    return cutFromTheEnd(
        plan, [&](const Split &split, int stage, int end) { return split.room->earliestStart(stage, end, slowest); });
  }

  // The least `slowest` from `low` to `high` that `cut` can keep; `high` where it keeps none.
  template <typename Cut> double leastOf(double low, double high, Cut cut) {
    while (high - low > closeEnough * high) {
      const double middle = (low + high) / 2;
      (cut(middle) ? high : low) = middle;
    }
    return high;
  }

  std::optional<UnequalPlan> price(UnequalPlan plan) {
    std::vector<StageProblem> ofStage;
    std::vector<int> firstUnits;
    std::vector<int64_t> devices;
    for (const UnequalStage &stage : plan.stages) {
      const Split *split = splitOf(plan, stage);
      if (!split) return std::nullopt;
      ofStage.push_back(split->stages);
      firstUnits.push_back(stage.firstUnit);
      devices.push_back(stage.devices);
    }
    for (StageProblem &stage : ofStage) stage.devicesOfRank = devices;
    const StagePlan cut = planCut(ofStage, firstUnits);
    const PlanEvaluation evaluation = evaluatePlan(ofStage, cut);
    std::array<int, 3> modes{};
    const std::vector<Unit> &units = facts.structure->layout->units;
    for (size_t u = 0; u < units.size(); ++u) modes[size_t(cut.recompute[u])] += units[u].isBlock;
    plan.recompute = Recompute(std::ranges::max_element(modes) - modes.begin());
    plan.seconds = evaluation.predicted.stepSeconds;
    plan.bytes = evaluation.predicted.memory.total();
    plan.fits = evaluation.fits;
    return plan;
  }

  // Stages that begin a unit earlier or later, or are split in other ways, as long as that is faster.
  void improve(UnequalPlan &plan, const SearchClock &clock) {
    auto accept = [&](const UnequalPlan &other) {
      std::optional<UnequalPlan> priced = price(other);
      if (!priced || !priced->fits || !(priced->seconds < plan.seconds * (1 - leastGain))) return false;
      plan = std::move(*priced);
      return true;
    };
    const int units = int(facts.structure->layout->units.size());
    for (bool improved = true; improved;) {
      improved = false;
      for (size_t s = 0; s < plan.stages.size() && !clock.isOver(); ++s) {
        for (const auto &split : splitsOf(plan, plan.stages[s].devices)) {
          UnequalPlan other = plan;
          other.stages[s].tp = split->tp;
          if (split->tp != plan.stages[s].tp) improved = accept(other) || improved;
        }
        const int end = s + 1 < plan.stages.size() ? plan.stages[s + 1].firstUnit : units;
        for (int start : {plan.stages[s].firstUnit - 1, plan.stages[s].firstUnit + 1}) {
          if (s == 0 || start <= plan.stages[s - 1].firstUnit || start >= end) continue;
          UnequalPlan other = plan;
          other.stages[s].firstUnit = start;
          improved = accept(other) || improved;
        }
      }
    }
  }
};

UnequalPricing::UnequalPricing(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                               const Constraints &constraints)
    : impl(new Impl{problem,
                    facts,
                    cluster,
                    Cells(problem, facts, cluster, constraints),
                    openRecomputation(constraints, facts.structure->segments.any()),
                    usableMemory(cluster),
                    {}}) {}
UnequalPricing::~UnequalPricing() = default;

std::optional<UnequalPlan> UnequalPricing::price(UnequalPlan plan) { return impl->price(std::move(plan)); }

std::optional<UnequalPlan> UnequalPricing::choose(UnequalPlan plan, double worth, const SearchClock &clock) {
  // What all stages can take and still be faster, of one microbatch.
  double most = worth / double(plan.microbatches);
  double whole = 0;
  for (const UnequalStage &stage : plan.stages) {
    double slowest = 0; // on these devices alone
    for (const auto &split : impl->splitsOf(plan, stage.devices))
      slowest = std::max(slowest, split->room->secondsBefore().back());
    if (slowest == 0) return std::nullopt;
    whole = std::max(whole, slowest);
  }
  most = std::min(most, 4 * whole); // with what is computed again
  auto byTime = [&](double slowest) { return impl->cutByTime(plan, slowest); };
  auto byMemory = [&](double slowest) { return impl->cutByMemory(plan, slowest); };
  if (!byTime(most)) return std::nullopt;
  const double least = impl->leastOf(0, most, byTime);
  if (!byMemory(least)) {
    if (!byMemory(most)) return std::nullopt;
    byMemory(impl->leastOf(least, most, byMemory));
  }
  std::optional<UnequalPlan> priced = impl->price(plan);
  if (!priced || !priced->fits || priced->seconds >= worthChoosing * worth) return std::nullopt;
  impl->improve(*priced, clock);
  return priced->seconds < worth ? priced : std::nullopt;
}

namespace {

// Devices of stages, in order: inside a node each, or whole nodes; not all the same.
void compose(const Cluster &cluster, int64_t part, int64_t left, std::vector<int64_t> &stages,
             std::vector<std::vector<int64_t>> &found) {
  const int64_t used = cluster.numDevices() - left, node = cluster.devicesPerNode;
  if (left == 0) {
    const bool isEqual = std::ranges::all_of(stages, [&](int64_t devices) { return devices == stages[0]; });
    if (stages.size() > 1 && !isEqual) found.push_back(stages);
    return;
  }
  if (int64_t(stages.size()) == mostStages) return;
  for (int64_t devices = part; devices <= left; devices += part) {
    const bool isInside = used / node == (used + devices - 1) / node;
    if (!isInside && (used % node != 0 || devices % node != 0)) continue;
    stages.push_back(devices);
    compose(cluster, part, left - devices, stages, found);
    stages.pop_back();
  }
}

} // namespace

std::optional<UnequalPlan> bestUnequalStages(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                                             const Constraints &constraints, double worth, const SearchClock &clock) {
  const int64_t devices = cluster.numDevices(), node = cluster.devicesPerNode;
  int64_t part = 1; // of a node, or so many nodes
  while (devices % part != 0 || devices / part > mostParts || (node % part != 0 && part % node != 0)) ++part;
  std::vector<std::vector<int64_t>> compositions;
  std::vector<int64_t> stages;
  compose(cluster, part, devices, stages, compositions);
  UnequalPricing pricing(problem, facts, cluster, constraints);
  std::optional<UnequalPlan> best;
  std::vector<int64_t> counts = divisors(problem.batch); // of microbatches, most first
  std::ranges::reverse(counts);
  std::erase_if(counts, [&](int64_t count) { return constraints.microbatches.value_or(count) != count; });
  std::erase_if(compositions, [&](const std::vector<int64_t> &sizes) {
    const auto count = int64_t(sizes.size());
    return constraints.pp.value_or(count) != count || sizes.size() > facts.structure->layout->units.size();
  });
  for (const std::vector<int64_t> &sizes : compositions) {
    UnequalPlan plan;
    for (int64_t size : sizes) plan.stages.push_back({size});
    for (int64_t microbatches : counts) {
      if (microbatches < 2 * int64_t(sizes.size())) break;
      plan.microbatches = microbatches;
      for (int zero : constraints.zero ? std::vector<int>{*constraints.zero} : std::vector<int>{0, 1, 2, 3}) {
        if (clock.isOver()) return best;
        plan.zero = zero;
        std::optional<UnequalPlan> chosen = pricing.choose(plan, worth, clock);
        if (!chosen) continue;
        worth = chosen->seconds;
        best = std::move(chosen);
      }
    }
  }
  return best;
}

} // namespace cleave::planner
