#include "compiler/planner/pipeline/stage_plan.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/pipeline/rank_load.h"
#include "compiler/planner/pipeline/stage_messages.h"
#include "compiler/schedule/simulate.h"
#include <algorithm>
#include <cmath>

namespace cleave::planner {
namespace {

// A cut whose time is so close to the bound of all cuts is not sought again for its memory.
constexpr double closeToBound = 1.003;

// The state of all ranks.
Cost wholeState(const SplitModel &model, const StateCosts &state) {
  Cost sum;
  for (size_t kind = 0; kind < state.kinds.size(); ++kind)
    sum.add(state.kinds[kind], double(model.layout->sizeOfKind[kind]));
  for (const Cost &shared : state.shared) sum.add(shared);
  return sum;
}

class StagePlanner {
public:
  explicit StagePlanner(const StageProblem &problem)
      : problem(problem), units(problem.model->layout->units), stages(problem.stages()),
        ways(problem.recompute ? std::vector<Recompute>{*problem.recompute} : problem.allowed), room(problem),
        before(room.secondsBefore()) {}

  std::optional<StagePlan> plan(const PlanWorth &worth) {
    if (int(units.size()) < stages) return std::nullopt;
    const LeastParts least = leastParts({});
    StagePlan result;
    // Most settings are left by what needs no cut.
    double slowest = 0;
    for (bool isCut : {false, true}) {
      if (isCut) slowest = slowestStage();
      result.bound = leastSeconds(least, slowest, worth.bound, result.isTight);
      const bool isSlow = worth.bound < infinity && result.bound >= worth.bound;
      // Where nothing has been found yet a cut that does not fit is of interest, too: it may need least.
      const bool isSlowByFormula = !isSlow && problem.profile && worth.formula < infinity &&
                                   leastByFormula(least, slowest, least.again) >= worth.formula;
      // By formula shardings that keep less are no faster than these would be with more memory.
      if (isSlowByFormula) result.isTight = result.isTight && leastByFormula(least, slowest, 0) < worth.formula;
      result.isPruned = isSlow || isSlowByFormula;
      if (result.isPruned && (isCut || isSlowByFormula || !result.isTight)) return result;
    }
    if (!problem.firstUnits.empty())
      result.firstUnits = problem.firstUnits;
    else if (!cutByTime(slowest * (1 + 1e-9), result.firstUnits))
      return std::nullopt;
    finish(result);
    auto isMore = [&](Recompute how) { return how != problem.recompute.value_or(Recompute::None); };
    // Where memory makes the first ranks recompute, they get fewer units.
    const bool isClose = result.fits && result.seconds <= closeToBound * result.bound;
    if (!isClose && problem.firstUnits.empty() && stages > 1 && stages == problem.ranks() &&
        (!result.fits || std::any_of(result.recompute.begin(), result.recompute.end(), isMore)))
      if (StagePlan other; cutByMemory(slowest, other.firstUnits)) {
        finish(other);
        if (std::pair(!other.fits, other.seconds) < std::pair(!result.fits, result.seconds)) {
          other.bound = result.bound;
          result = std::move(other);
        }
      }
    // Where messages take longer than passes, stages are cut where little crosses.
    if (StagePlan other; problem.firstUnits.empty() && longestMessages(problem, result.firstUnits) > slowest) {
      other.firstUnits = cutByMessages(problem, before);
      finish(other);
      if (std::pair(!other.fits, other.seconds) < std::pair(!result.fits, result.seconds)) {
        other.bound = result.bound;
        result = std::move(other);
      }
    }
    return result;
  }

  double leastNotHidden() const { return leastNotHidden(wholeState(*problem.model, *problem.state).hideable); }

  double leastOfAnyStage(double worth, bool &isTight) const {
    return leastSeconds(leastParts({.once = false, .workspace = false}), 0, worth, isTight);
  }

  StagePlan planCut(const std::vector<int> &firstUnits) const {
    StagePlan plan;
    plan.firstUnits = firstUnits;
    finish(plan);
    return plan;
  }

private:
  // The parts that count of what follows from the ZeRO stage beside the bytes that stay.
  struct Counted {
    bool once = true;      // what is done once a step
    bool workspace = true; // buckets under way, gathered parameters
  };

  const Device &device() const { return problem.model->cluster->device; }

  // A step's seconds when the slowest rank needs `slowest` for each chunk of a microbatch and all need `sum`.
  double seconds(double slowest, double sum) const {
    double microbatches = double(problem.model->setting.microbatches);
    if (!problem.profile) return sum * microbatches;
    double ranks = double(problem.ranks());
    double rank = slowest * double(problem.profile->chunks());
    return leastOnSharedCores(device(), problem.ranks(),
                              std::max(rank, sum / ranks) * microbatches + problem.profile->bubble() * sum / ranks,
                              sum / ranks * microbatches);
  }

  // Seconds that there are at least however the units are cut: of a step after its passes, of a microbatch for what is
  // computed again; of a given cut, of all passes as they are.
  struct LeastParts {
    double once = 0, again = 0, ofCut = 0;
  };

  LeastParts leastParts(Counted counted) const {
    return {counted.once ? leastAtTheEnd() : 0, leastRecomputation(counted), leastOfGivenCut()};
  }

  // A rank does all its work after the first microbatch has come through the stages before it, and then what it sent
  // back goes down through these.
  double leastOfGivenCut() const {
    const ScheduleProfile *profile = problem.profile;
    if (!profile || problem.firstUnits.empty() || !profile->isFlushed() || profile->splitsBackward) return 0;
    std::vector<double> work(size_t(problem.ranks()), 0.0), way(work);
    for (int stage = stages; stage-- > 0;) {
      const auto rank = size_t(problem.rankOf(stage)), first = size_t(problem.firstUnits[size_t(stage)]);
      const size_t end = stage + 1 < stages ? size_t(problem.firstUnits[size_t(stage) + 1]) : units.size();
      work[rank] += before[end] - before[first];
      way[rank] = before[first];
    }
    double seconds = 0;
    for (size_t rank = 0; rank < work.size(); ++rank)
      seconds = std::max(seconds, way[rank] + work[rank] * double(problem.model->setting.microbatches));
    return seconds;
  }

  // The bound that no plan's `seconds` are below, if so much is computed again.
  double leastByFormula(const LeastParts &least, double slowest, double again) const {
    const bool isChunked = problem.profile->chunks() > 1;
    return seconds(isChunked ? 0 : slowest, before.back() + again) + least.once;
  }

  // However the units are cut: what recomputation takes, the waiting, and what is left of the reductions.
  double leastSeconds(const LeastParts &least, double slowest, double worth, bool &isTight) const {
    const double microbatches = double(problem.model->setting.microbatches), ranks = double(problem.ranks());
    auto boundOf = [&](double all) {                    // of one microbatch
      const double passes = all / ranks * microbatches; // the mean rank's
      if (!problem.profile) return passes + least.once;
      double waited = leastOfAnyCut(*problem.profile, problem.model->setting.microbatches, all);
      if (problem.profile->isFlushed()) waited = std::max(waited, leastWay());
      if (problem.profile->chunks() == 1) waited = std::max(waited, slowest * microbatches);
      waited = std::max(waited, least.ofCut);
      return std::max(passes + least.once, leastOnSharedCores(device(), problem.ranks(), waited, passes));
    };
    // Where there is no room for the parameters, or the bound without memory is too long already, shardings that keep
    // less help little.
    isTight = least.again > 0 && boundOf(before.back()) < worth &&
              hasRoomForState(*problem.model, *problem.state, problem.memoryLimit, problem.ranks());
    return least.again == infinity ? infinity : boundOf(before.back() + least.again);
  }

  // One microbatch's way through all units and its gradient's back. Weights' gradients may come after that where they
  // are passes of their own.
  double leastWay() const {
    double seconds = 0;
    for (size_t kind = 0; kind < problem.model->layout->sizeOfKind.size(); ++kind) {
      double least = infinity;
      for (Recompute how : ways) {
        const Cost &one = problem.activity->of(int(kind), how);
        least = std::min(least,
                         one.forward + one.backwardInput + (problem.profile->splitsBackward ? 0 : one.backwardWeight));
      }
      seconds += least * double(problem.model->layout->sizeOfKind[kind]);
    }
    return seconds;
  }

  // The least seconds of a rank's work after its passes, on average.
  double leastAtTheEnd() const {
    const Cost all = wholeState(*problem.model, *problem.state);
    return (all.update + all.exposed) / double(problem.ranks()) + leastNotHidden(all.hideable);
  }

  // The least that is left of so many seconds of all ranks that compute may hide; on average.
  double leastNotHidden(double hideable) const {
    const double microbatches = double(problem.model->setting.microbatches);
    Overlap overlap = overlapOf(*problem.model);
    double hidden = 0;
    for (Recompute how : ways) {
      Cost work;
      const std::vector<int> &sizes = problem.model->layout->sizeOfKind;
      for (size_t kind = 0; kind < sizes.size(); ++kind)
        work.add(problem.activity->of(int(kind), how), double(sizes[kind]));
      const double forward = work.computeForward();
      hidden = std::max(hidden, overlap.forward * forward + overlap.backward * (work.compute() - forward));
    }
    return std::max(0.0, hideable - microbatches * hidden) / double(problem.ranks());
  }

  // The bytes of all ranks together; each has room for one bucket and for two blocks at least, if it needs that much.
  double leastBesideOfTensor(const Cost &state) const {
    Cost all = state;
    const std::vector<int> &sizes = problem.model->layout->sizeOfKind;
    for (size_t kind = 0; kind < sizes.size(); ++kind)
      all.add(problem.activity->of(int(kind), problem.recompute.value_or(Recompute::None)), double(sizes[kind]));
    if (problem.ranks() > 1) all.largestGradient = all.largestGathered = 0;
    return besideOfTensor(problem.model->setting, all);
  }

  // Seconds of a microbatch that recomputation takes at least, however the units lie on the ranks: what all ranks
  // together can keep, the rest computed again where that saves most bytes for the time. Infinite when it cannot fit.
  double leastRecomputation(Counted counted) const {
    const UnitLayout &layout = *problem.model->layout;
    Recompute plain = problem.recompute.value_or(Recompute::None);
    // One rank also needs what its largest unit does beside; several need what the smallest does.
    const Cost all = wholeState(*problem.model, *problem.state);
    double workspace = infinity, largest = 0, whenAgain = infinity;
    for (size_t kind = 0; kind < layout.sizeOfKind.size(); ++kind) {
      double bytes = infinity;
      for (Recompute how : ways) {
        const Cost &activity = problem.activity->of(int(kind), how);
        bytes = std::min(bytes, activity.beside);
        if (how != plain) whenAgain = std::min(whenAgain, activity.beside);
      }
      workspace = std::min(workspace, bytes);
      largest = std::max(largest, bytes);
    }
    bool isOne = problem.ranks() == 1;
    const Setting &setting = problem.model->setting;
    if (isOne) workspace = counted.workspace ? workspaceBytes(setting, largest, all) : largest;
    double mostLive = 0, room = 0;
    for (int rank = 0; rank < problem.ranks(); ++rank) {
      mostLive = std::max(mostLive, problem.leastLive(rank));
      room += std::max(0.0, problem.memoryLimit - workspace) / problem.leastLive(rank);
    }
    double staged = 0;
    for (size_t kind = 0; kind < layout.sizeOfKind.size(); ++kind)
      staged += problem.activity->of(int(kind), plain).staged * double(layout.sizeOfKind[kind]);
    room -= (all.stateBytes() + staged + leastBesideOfTensor(all)) / mostLive;
    double kept = 0, again = 0;
    std::vector<std::pair<double, double>> savings; // seconds for a byte, bytes
    for (size_t kind = 0; kind < layout.sizeOfKind.size(); ++kind) {
      const Cost &first = problem.activity->of(int(kind), plain);
      // The bytes saved against the seconds they take, from the lower hull of the ways: each byte at the price of its
      // segment.
      std::vector<std::pair<double, double>> saving; // bytes, seconds
      for (Recompute how : ways) {
        const Cost &other = problem.activity->of(int(kind), how);
        if (other.kept < first.kept)
          saving.emplace_back(first.kept - other.kept, std::max(0.0, other.seconds() - first.seconds()));
      }
      double count = double(layout.sizeOfKind[kind]), bytes = 0, seconds = 0;
      kept += problem.kept(first) * count;
      while (true) {
        const std::pair<double, double> *next = nullptr;
        auto price = [&](const std::pair<double, double> &way) { return (way.second - seconds) / (way.first - bytes); };
        for (const auto &way : saving)
          if (way.first > bytes && (!next || price(way) < price(*next))) next = &way;
        if (!next) break;
        savings.emplace_back(std::max(0.0, price(*next)), (next->first - bytes) * count);
        std::tie(bytes, seconds) = *next;
      }
    }
    // Recomputed values stand beside the rest.
    if (isOne && kept > room && whenAgain < infinity) room -= std::max(0.0, whenAgain - largest) / mostLive;
    std::sort(savings.begin(), savings.end());
    for (auto [price, bytes] : savings) {
      double part = std::clamp(kept - room, 0.0, bytes);
      again += part * price;
      kept -= part;
    }
    return kept > room * (1 + 1e-9) ? infinity : again;
  }

  // The least time of the slowest stage, memory aside.
  double slowestStage() const {
    double low = before.back() / double(stages), high = before.back();
    for (size_t u = 0; u < units.size(); ++u) low = std::max(low, before[u + 1] - before[u]);
    std::vector<int> starts;
    if (cutByTime(low * (1 + 1e-9), starts)) return low;
    for (int i = 0; i < 40 && high - low > 1e-6 * high; ++i) {
      double middle = (low + high) / 2;
      (cutByTime(middle, starts) ? high : low) = middle;
    }
    return high;
  }

  // From the last stage on, each as long as `slowest` allows: the first stages, which keep most, get what is left.
  bool cutByTime(double slowest, std::vector<int> &starts) const {
    starts.assign(size_t(stages), 0);
    int end = int(units.size());
    for (int stage = stages - 1; stage > 0; --stage) {
      int start = end;
      while (start > stage && before[size_t(end)] - before[size_t(start) - 1] <= slowest) --start;
      if (start == end) return false;
      starts[size_t(stage)] = start;
      end = start;
    }
    return end > 0 && before[size_t(end)] <= slowest;
  }

  bool cutByMemory(double least, std::vector<int> &starts) const {
    double low = least, high = 2 * before.back();
    std::vector<int> attempt;
    if (!cutWithin(high, starts)) return false;
    for (int i = 0; i < 20 && high - low > 1e-3 * high; ++i) {
      double middle = (low + high) / 2;
      if (cutWithin(middle, attempt)) {
        starts = attempt;
        high = middle;
      } else
        low = middle;
    }
    return true;
  }

  bool cutWithin(double slowest, std::vector<int> &starts) const {
    starts.assign(size_t(stages), 0);
    int end = int(units.size());
    for (int stage = stages - 1; stage >= 0; --stage) {
      const int start = room.earliestStart(stage, end, slowest);
      if (start == end) return false;
      starts[size_t(stage)] = start;
      end = start;
    }
    return end == 0;
  }

  // Recomputation of each rank, and the step's seconds.
  void finish(StagePlan &plan) const {
    plan.recompute.assign(units.size(), Recompute::None);
    plan.fits = true;
    double slowest = 0, sum = 0, once = 0;
    for (int rank = 0; rank < problem.ranks(); ++rank) {
      RankLoad load(problem);
      std::vector<std::pair<int, int>> mine; // units, their stages
      for (int stage = 0; stage < stages; ++stage) {
        if (problem.rankOf(stage) != rank) continue;
        int end = stage + 1 < stages ? plan.firstUnits[size_t(stage) + 1] : int(units.size());
        load.add(plan.firstUnits[size_t(stage)], end, stage);
        for (int unit = plan.firstUnits[size_t(stage)]; unit < end; ++unit) {
          if (auto mode = problem.given(stage, unit)) plan.recompute[size_t(unit)] = *mode;
          mine.emplace_back(unit, stage);
        }
        load.buffers += transferBytes(problem, stage, plan.firstUnits[size_t(stage)], end);
      }
      double time = 0;
      plan.fits = load.fit(time) && plan.fits;
      if (!problem.isGiven()) load.assign(mine, plan.recompute);
      slowest = std::max(slowest, time);
      sum += time;
      plan.bytes = std::max(plan.bytes, load.memory());
      once = std::max(once, load.state.update + load.state.exposed + notHidden(*problem.model, load));
    }
    // Messages go beside the passes, one at a time.
    slowest =
        std::max(slowest / double(std::max(1, stages / problem.ranks())), longestMessages(problem, plan.firstUnits));
    plan.seconds = seconds(slowest, sum) + once;
  }

  // The part of a rank's hideable collectives that is left when its compute is over, and what others wait for them.
  static double notHidden(const SplitModel &model, const RankLoad &load) {
    const double microbatches = double(model.setting.microbatches);
    const Cost cost = load.total();
    const Hidden hidden = hide(model, BesideSeconds::of(cost), PassSeconds::of(cost, microbatches));
    return cost.hideable - hidden.seconds + hidden.contention;
  }

  const StageProblem &problem;
  const std::vector<Unit> &units;
  int stages;
  std::vector<Recompute> ways; // that are open
  StageRoom room;
  const std::vector<double> &before; // seconds of all units before one
};

} // namespace

StageRoom::StageRoom(const StageProblem &problem) : problem(problem) {
  const Recompute plain = problem.recompute.value_or(Recompute::None);
  before.reserve(problem.model->layout->units.size() + 1);
  before.push_back(0);
  for (const Unit &unit : problem.model->layout->units)
    before.push_back(before.back() + problem.activity->of(unit.kind, plain).seconds());
}

// Units are added in strides that double, then halve; what they need grows with them but for what is received, which
// is another where the stage begins elsewhere.
int StageRoom::earliestStart(int stage, int end, double slowest) const {
  RankLoad load(problem);
  const double sent = transferBytes(problem, stage, 0, end);
  int start = end;
  bool grows = true;
  for (int stride = 1; stride > 0; grows ? stride *= 2 : stride /= 2) {
    const int next = start - stride;
    // Computing again takes time only.
    bool fits = next >= stage && before[size_t(end)] - before[size_t(next)] <= slowest * (1 + 1e-9);
    if (fits) {
      RankLoad longer = load;
      longer.add(next, start, stage);
      longer.buffers = sent;
      double seconds = 0;
      fits = longer.fit(seconds) && seconds <= slowest;
      if (fits) load = std::move(longer);
    }
    if (fits)
      start = next;
    else
      grows = false;
  }
  while (start < end) {
    double seconds = 0;
    load.buffers = transferBytes(problem, stage, start, end);
    if (load.fit(seconds) && seconds <= slowest) break;
    load = RankLoad(problem);
    load.add(++start, end, stage);
  }
  return start;
}

std::vector<int> evenChunks(const StageProblem &problem) {
  const std::vector<Unit> &units = problem.model->layout->units;
  std::vector<int> blocks;
  for (size_t u = 0; u < units.size(); ++u)
    if (units[u].isBlock) blocks.push_back(int(u));
  const size_t stages = size_t(problem.stages());
  if (!problem.profile || problem.profile->chunks() == 1 || blocks.empty() || blocks.size() % stages != 0) return {};
  const Recompute plain = problem.recompute.value_or(Recompute::None);
  double before = 0, after = 0, block = infinity;
  for (size_t u = 0; u < units.size(); ++u) {
    const double seconds = problem.activity->of(units[u].kind, plain).seconds();
    if (units[u].isBlock)
      block = std::min(block, seconds);
    else if (int(u) < blocks.front())
      before += seconds;
    else
      after += seconds; // what lies between blocks too
  }
  if (std::max(before, after) > block) return {};
  std::vector<int> starts = {0};
  for (size_t s = 1; s < stages; ++s) starts.push_back(blocks[s * blocks.size() / stages]);
  return starts;
}

double borderBytes(const StageProblem &problem, int unit) {
  if (problem.ranks() <= 1 || unit <= 0 || unit >= int(problem.model->layout->units.size())) return 0;
  return 2 * (problem.activity->forwardCrossing[size_t(unit)] + problem.activity->backwardCrossing[size_t(unit)]);
}

double transferBytes(const StageProblem &problem, int stage, int first, int end) {
  double bytes = borderBytes(problem, first) + borderBytes(problem, end);
  if (problem.ranks() <= 1) return bytes;
  const ActivityCosts &activity = *problem.activity;
  if (first > 0) bytes += problem.live(stage) * activity.forwardCrossing[size_t(first)];
  return bytes + problem.live(stage) * activity.backwardCrossing[size_t(end)];
}

bool hasRoomForState(const SplitModel &model, const StateCosts &state, double memoryLimit, int ranks) {
  return wholeState(model, state).stateBytes() <= memoryLimit * ranks;
}

double leastNotHidden(const StageProblem &problem) { return StagePlanner(problem).leastNotHidden(); }

double leastOfAnyStage(const StageProblem &problem, double worth, bool &isTight) {
  return StagePlanner(problem).leastOfAnyStage(worth, isTight);
}

std::optional<StagePlan> planStages(const StageProblem &problem, const PlanWorth &worth) {
  return StagePlanner(problem).plan(worth);
}

StagePlan planCut(const StageProblem &problem, const std::vector<int> &firstUnits) {
  return StagePlanner(problem).planCut(firstUnits);
}

// Rank r works m w_r, has waited before it for the first microbatch to come through the ranks above, a part a of w_i
// each, and, where backward passes are whole, rank 0 waits after it for the last gradients to come back:
// T >= m w_r + a sum_{i<r} w_i. The least T has all of these equal, and loads that shrink by 1 - a/m from rank to rank:
// T = a W / (1 - (1 - a/m)^p). Chunks of a rank may be empty but for one: a = 0; but a
// microbatch has to go all the way.
double leastOfAnyCut(const ScheduleShape &shape, int64_t microbatches, double seconds) {
  double ranks = double(shape.ranks);
  if (shape.chunks() > 1 || !shape.isFlushed()) {
    const double mean = seconds * double(microbatches) / ranks;
    return shape.isFlushed() && !shape.splitsBackward ? std::max(mean, seconds) : mean;
  }
  // A forward pass is at least a sixth of all: where everything is recomputed and backward is four times as long.
  double part = shape.splitsBackward ? 1.0 / 6 : 1;
  return part * seconds / (1 - std::pow(1 - part / double(microbatches), ranks));
}

} // namespace cleave::planner
