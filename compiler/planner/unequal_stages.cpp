#include "compiler/planner/unequal_stages.h"
#include "compiler/planner/cells.h"
#include "compiler/planner/schedule/simulate.h"
#include "compiler/planner/settings.h"
#include <algorithm>
#include <chrono>
#include <fmt/format.h>
#include <limits>
#include <set>

namespace cleave::planner {
namespace {

// Parts in which devices are handed out, stages, and tensor parallel ways that are looked at.
constexpr int64_t mostParts = 8, mostStages = 4, mostTensorWays = 8;
// Longer schedules repeat at the pace of the slowest rank.
constexpr int64_t mostSimulated = 256;

// One stage on its devices.
struct StageCosts {
  double forward = 0, backwardInput = 0, backwardWeight = 0; // of a microbatch
  double atEnd = 0;                                          // once a step
  double bytes = 0;
  double seconds() const { return forward + backwardInput + backwardWeight; }
};

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

  // A stage's model, choice and activities; null where the samples or the model do not divide.
  struct Split {
    SplitModel model;
    const std::vector<int> *choice = nullptr;
    const ActivityCosts *activity = nullptr;
    StateCosts state;
  };
  std::map<std::tuple<int64_t, int64_t, int64_t, int64_t, int>, std::optional<Split>> splits;

  const Split *splitOf(const UnequalPlan &plan, const UnequalStage &stage) {
    const auto ranks = int64_t(plan.stages.size());
    auto [found, isNew] =
        splits.try_emplace({stage.devices, stage.tp, plan.microbatches, ranks, plan.zero}, std::nullopt);
    if (!isNew) return found->second ? &*found->second : nullptr;
    Setting setting;
    setting.pp = ranks;
    setting.tp = stage.tp;
    setting.dp = stage.devices / stage.tp;
    setting.microbatches = plan.microbatches;
    setting.zero = setting.dp > 1 ? plan.zero : 0;
    setting.schedule = "1f1b";
    if (stage.devices % stage.tp != 0 || problem.batch / plan.microbatches % setting.dp != 0) return nullptr;
    Cell &cell = cells.at(setting);
    cells.solve(cell);
    if (cell.variants.empty()) return nullptr;
    found->second = Split{cells.modelFor(cell, setting), &cell.variants[0].choice, nullptr, {}};
    Split &split = *found->second;
    split.activity = &cells.activityOf(cell, 0, split.model);
    split.state = costState(split.model, *split.choice);
    return &split;
  }

  // Units [first, end) computed again in a way, of a stage.
  StageCosts costsOf(const Split &split, const UnequalPlan &plan, const ScheduleProfile &profile, size_t s, int first,
                     int end, Recompute how) const {
    const UnitLayout &layout = *split.model.layout;
    UnitActivity work;
    UnitState state;
    double buffers = borders(plan, split, first, end);
    for (int u = first; u < end; ++u) {
      work += split.activity->of(layout.units[size_t(u)].kind, how);
      state += split.state.kinds[size_t(layout.units[size_t(u)].kind)];
    }
    for (size_t p = 0; p < layout.shared.size(); ++p) {
      bool here = false, elsewhere = false;
      for (int unit : layout.shared[p].units) (unit >= first && unit < end ? here : elsewhere) = true;
      if (!here) continue;
      state += split.state.shared[p];
      if (!elsewhere) continue;
      const double gradients = split.state.shared[p].gradients;
      state.exposed += collectiveSeconds(cluster, Collective::AllReduce, {2, crosses(plan, s) ? 1 : 2}, gradients);
      buffers += gradients;
      work.beside = std::max(work.beside, gradients);
    }
    double kept = work.kept + (profile.splitsBackward ? work.held : 0);
    if (first > 0) kept += split.activity->forwardCrossing[size_t(first)];
    if (end < int(layout.units.size())) kept += split.activity->backwardCrossing[size_t(end)];
    const double microbatches = double(plan.microbatches), compute = work.seconds() - work.communication;
    const double forward = work.forward * compute / std::max(1e-30, work.seconds());
    const double hidden =
        hiddenSeconds(split.model, state.hideable, 0, microbatches * forward, microbatches * (compute - forward));
    return {work.forward, work.backwardInput, work.backwardWeight,
            state.hideable - hidden + state.exposed + state.update,
            state.bytes() + profile.live[s] * kept + buffers +
                workspaceBytes(split.model.setting, work.beside, state.largestParameter, state.gradients,
                               state.parameters)};
  }

  double borders(const UnequalPlan &plan, const Split &split, int first, int end) const {
    double bytes = 0;
    for (int unit : {first, end})
      if (plan.stages.size() > 1 && unit > 0 && unit < int(split.model.layout->units.size()))
        bytes += 2 * (split.activity->forwardCrossing[size_t(unit)] + split.activity->backwardCrossing[size_t(unit)]);
    return bytes;
  }

  // Does what stage s sends to the next, or the last one gets, pass between nodes?
  bool crosses(const UnequalPlan &plan, size_t s) const {
    s = std::min(s, plan.stages.size() - 2);
    int64_t first = 0;
    for (size_t i = 0; i < s; ++i) first += plan.stages[i].devices;
    const int64_t last = first + plan.stages[s].devices + plan.stages[s + 1].devices - 1;
    return first / cluster.devicesPerNode != last / cluster.devicesPerNode;
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

bool UnequalPricing::cut(UnequalPlan &plan) {
  const std::vector<Unit> &units = impl->facts.structure->layout->units;
  const size_t count = plan.stages.size();
  if (units.size() < count) return false;
  std::vector<std::vector<double>> before(count, {0}); // seconds of all units before one, on a stage's devices
  for (size_t s = 0; s < count; ++s) {
    const Impl::Split *split = impl->splitOf(plan, plan.stages[s]);
    if (!split) return false;
    for (const Unit &unit : units)
      before[s].push_back(before[s].back() + split->activity->of(unit.kind, impl->ways.front()).seconds());
  }
  // From the last stage on, each as long as `slowest` allows.
  auto within = [&](double slowest) {
    int end = int(units.size());
    for (size_t s = count; s-- > 0;) {
      int start = end;
      while (start > int(s) && before[s][size_t(end)] - before[s][size_t(start) - 1] <= slowest) --start;
      if (start == end) return false;
      plan.stages[s].firstUnit = start;
      end = start;
    }
    return end == 0;
  };
  double low = 0, high = 0;
  for (const std::vector<double> &sums : before) high = std::max(high, sums.back());
  for (int i = 0; i < 30; ++i) {
    const double middle = (low + high) / 2;
    (within(middle) ? high : low) = middle;
  }
  return within(high * (1 + 1e-9));
}

std::optional<UnequalPlan> UnequalPricing::price(UnequalPlan plan, double worth) {
  const size_t count = plan.stages.size();
  const int units = int(impl->facts.structure->layout->units.size());
  const ScheduleProfile *profile = scheduleProfile("1f1b", int64_t(count), plan.microbatches);
  if (!profile) return std::nullopt;
  const double microbatches = double(plan.microbatches);
  std::vector<StageTimes> times;
  std::vector<double> atEnd;
  double slowest = 0;
  plan.fits = true;
  plan.bytes = 0;
  plan.seconds = 0;
  for (size_t s = 0; s < count; ++s) {
    const Impl::Split *split = impl->splitOf(plan, plan.stages[s]);
    if (!split) return std::nullopt;
    const int first = plan.stages[s].firstUnit, end = s + 1 < count ? plan.stages[s + 1].firstUnit : units;
    StageCosts best;
    bool fits = false;
    for (Recompute how : impl->ways) {
      const StageCosts one = impl->costsOf(*split, plan, *profile, s, first, end, how);
      const bool oneFits = one.bytes <= impl->limit;
      const bool isFirst = how == impl->ways.front();
      if (!isFirst && (oneFits ? fits && one.seconds() >= best.seconds() : fits || one.bytes >= best.bytes)) continue;
      best = one;
      fits = oneFits;
      plan.stages[s].recompute = how;
    }
    plan.fits = plan.fits && fits;
    plan.bytes = std::max(plan.bytes, best.bytes);
    slowest = std::max(slowest, best.seconds());
    plan.seconds = std::max(plan.seconds, microbatches * best.seconds() + best.atEnd);
    atEnd.push_back(best.atEnd);
    StageTimes stage{best.forward, best.backwardInput, best.backwardWeight, 0, 0};
    // The side of a border with fewer devices has more on each.
    auto send = [&](int unit, size_t other, const std::vector<double> ActivityCosts::*crossing) {
      const Impl::Split *beside = impl->splitOf(plan, plan.stages[other]);
      if (!beside) return 0.0;
      const double bytes =
          std::max((split->activity->*crossing)[size_t(unit)], (beside->activity->*crossing)[size_t(unit)]);
      return bytes > 0 ? sendSeconds(impl->cluster, impl->crosses(plan, std::min(s, other)), bytes) : 0.0;
    };
    if (s + 1 < count) stage.sendForward = send(end, s + 1, &ActivityCosts::forwardCrossing);
    if (s > 0) stage.sendBackward = send(first, s - 1, &ActivityCosts::backwardCrossing);
    times.push_back(stage);
  }
  if (plan.seconds >= worth) return plan;
  const int64_t simulated = std::min(plan.microbatches, mostSimulated);
  Result<PipelineSchedule> schedule = makeSchedule("1f1b", int(count), simulated, scheduleTimes(times));
  if (!schedule) return std::nullopt;
  const Simulation simulation = simulate(*schedule, times, impl->problem.meetsAtUpdate);
  for (size_t s = 0; s < count; ++s) {
    double last = 0;
    for (const ActionTime &action : simulation.actions[s]) last = std::max(last, action.end);
    plan.seconds = std::max(plan.seconds, last + slowest * double(plan.microbatches - simulated) + atEnd[s]);
  }
  return plan;
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
                                             const Constraints &constraints, double worth, double seconds) {
  const auto start = std::chrono::steady_clock::now();
  const int64_t devices = cluster.numDevices(), node = cluster.devicesPerNode;
  int64_t part = 1; // of a node, or so many nodes
  while (devices % part != 0 || devices / part > mostParts || (node % part != 0 && part % node != 0)) ++part;
  std::vector<std::vector<int64_t>> compositions;
  std::vector<int64_t> stages;
  compose(cluster, part, devices, stages, compositions);
  UnequalPricing pricing(problem, facts, cluster, constraints);
  std::optional<UnequalPlan> best;
  std::set<std::vector<std::pair<int64_t, int64_t>>> seen;
  std::vector<int64_t> counts = divisors(problem.batch); // of microbatches, most first
  std::ranges::reverse(counts);
  std::erase_if(counts, [&](int64_t count) { return constraints.microbatches.value_or(count) != count; });
  std::erase_if(compositions, [&](const std::vector<int64_t> &sizes) {
    return constraints.pp.value_or(int64_t(sizes.size())) != int64_t(sizes.size());
  });
  for (const std::vector<int64_t> &sizes : compositions)
    for (int64_t tp = 1; tp <= mostTensorWays; tp *= 2) {
      UnequalPlan plan;
      std::vector<std::pair<int64_t, int64_t>> key;
      for (int64_t size : sizes) {
        int64_t ways = std::min({tp, size, cluster.devicesPerNode});
        while (size % ways != 0) --ways;
        plan.stages.push_back({size, ways, 0, Recompute::None});
        key.emplace_back(size, ways);
      }
      if (!seen.insert(key).second) continue;
      for (int64_t microbatches : counts) {
        if (microbatches < 2 * int64_t(sizes.size())) break;
        if (seconds > 0 && std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > seconds)
          return best;
        plan.microbatches = microbatches;
        for (int zero : constraints.zero ? std::vector<int>{*constraints.zero} : std::vector<int>{0, 1, 2, 3}) {
          plan.zero = zero;
          if (!pricing.cut(plan)) break; // the samples do not divide
          std::optional<UnequalPlan> priced = pricing.price(plan, worth);
          if (!priced || !priced->fits || priced->seconds >= worth) continue;
          worth = priced->seconds;
          best = std::move(priced);
        }
      }
    }
  return best;
}

} // namespace cleave::planner
