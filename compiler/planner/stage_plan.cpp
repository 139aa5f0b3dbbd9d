#include "compiler/planner/stage_plan.h"
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace cleave::planner {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The units of one rank, by kind, and what they add up to.
class RankLoad {
public:
  RankLoad(const StageProblem &problem, int rank) : problem(problem), rank(rank) {}

  void add(int unit) {
    int kind = problem.model->layout->units[size_t(unit)].kind;
    auto found = std::find_if(kinds.begin(), kinds.end(), [&](const Count &count) { return count.kind == kind; });
    if (found == kinds.end()) found = kinds.insert(kinds.end(), {kind, 0, {0, 0, 0}});
    ++found->units;
    state += problem.state->kinds[size_t(kind)];
    for (size_t s = 0; s < problem.state->shared.size(); ++s) {
      const std::vector<int> &readers = problem.model->layout->shared[s].units;
      bool reads = std::find(readers.begin(), readers.end(), unit) != readers.end();
      if (!reads || std::find(sharedSeen.begin(), sharedSeen.end(), s) != sharedSeen.end()) continue;
      sharedSeen.push_back(s);
      state += problem.state->shared[s];
    }
  }

  // Chooses how much is recomputed; false when even all of it does not fit. `seconds` of one microbatch.
  bool fit(double &seconds) {
    std::vector<Recompute> ways = problem.recompute ? std::vector<Recompute>{*problem.recompute} : problem.allowed;
    best = infinity;
    for (Recompute way : ways) tryFrom(ways.front(), way);
    if (ways.size() > 2) tryFrom(ways[1], ways[2]);
    seconds = best;
    if (best == infinity) { // say what the leanest takes
      setAll(ways.back());
      seconds = total().seconds();
      return false;
    }
    for (size_t i = 0; i < kinds.size(); ++i) kinds[i].modes = bestModes[i];
    return true;
  }

  UnitActivity total() const {
    UnitActivity sum;
    for (const Count &count : kinds)
      for (size_t mode = 0; mode < 3; ++mode) {
        if (count.modes[mode] == 0) continue;
        UnitActivity one = problem.activity->of(count.kind, Recompute(mode));
        double times = double(count.modes[mode]);
        one.forward *= times;
        one.backwardInput *= times;
        one.backwardWeight *= times;
        one.communication *= times;
        one.again *= times;
        one.kept *= times;
        sum += one;
      }
    return sum;
  }

  double memory() const {
    UnitActivity sum = total();
    return state.bytes() + problem.live(rank) * sum.kept + sum.transient +
           workspaceBytes(problem.model->setting, sum.workspace, state.largestParameter, state.gradients,
                          state.parameters);
  }

  // Hands the modes out to the units in the order given, recomputed ones first.
  void assign(const std::vector<int> &units, std::vector<Recompute> &recompute) const {
    for (const Count &count : kinds) {
      std::array<int, 3> left = count.modes;
      for (int unit : units) {
        if (problem.model->layout->units[size_t(unit)].kind != count.kind) continue;
        size_t mode = left[2] > 0 ? 2 : left[1] > 0 ? 1 : 0;
        --left[mode];
        recompute[size_t(unit)] = Recompute(mode);
      }
    }
  }

  UnitState state;

private:
  struct Count {
    int kind = 0, units = 0;
    std::array<int, 3> modes{};
  };

  void setAll(Recompute how) {
    for (Count &count : kinds) {
      count.modes = {0, 0, 0};
      count.modes[size_t(how)] = count.units;
    }
  }

  // As many units in `more` as it takes, the others in `less`.
  void tryFrom(Recompute less, Recompute more) {
    setAll(less);
    auto accept = [&] {
      double seconds = total().seconds();
      if (seconds >= best) return;
      best = seconds;
      bestModes.clear();
      for (const Count &count : kinds) bestModes.push_back(count.modes);
    };
    double over = memory() - problem.memoryLimit;
    if (over <= 0) return accept();
    if (less == more) return;
    std::vector<size_t> order; // most bytes saved for the time first
    std::vector<double> saved(kinds.size()), price(kinds.size());
    for (size_t i = 0; i < kinds.size(); ++i) {
      const UnitActivity &a = problem.activity->of(kinds[i].kind, less), &b = problem.activity->of(kinds[i].kind, more);
      saved[i] = (a.kept - b.kept) * problem.live(rank);
      price[i] = (b.seconds() - a.seconds()) / saved[i];
      if (saved[i] > 0) order.push_back(i);
    }
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return std::pair(price[a], a) < std::pair(price[b], b); });
    for (size_t i : order) {
      over = memory() - problem.memoryLimit;
      if (over <= 0) break;
      // The first recomputed unit brings its transient bytes with it.
      double needed = over + problem.activity->of(kinds[i].kind, more).transient;
      int count = std::min(kinds[i].units, int(std::min(1e9, std::ceil(needed / saved[i]))));
      kinds[i].modes[size_t(less)] = kinds[i].units - count;
      kinds[i].modes[size_t(more)] = count;
      while (count > 1) { // the transient may have been there already
        --kinds[i].modes[size_t(more)];
        ++kinds[i].modes[size_t(less)];
        if (memory() > problem.memoryLimit) {
          ++kinds[i].modes[size_t(more)];
          --kinds[i].modes[size_t(less)];
          break;
        }
        --count;
      }
    }
    if (memory() <= problem.memoryLimit) accept();
  }

  const StageProblem &problem;
  int rank;
  std::vector<Count> kinds;
  std::vector<std::array<int, 3>> bestModes;
  double best = infinity;
  std::vector<size_t> sharedSeen; // parameters that another unit of the rank reads too
};

class StagePlanner {
public:
  explicit StagePlanner(const StageProblem &problem)
      : problem(problem), units(problem.model->layout->units), stages(problem.stages()) {
    Recompute plain = problem.recompute.value_or(Recompute::None);
    before.push_back(0);
    for (const Unit &unit : units) before.push_back(before.back() + problem.activity->of(unit.kind, plain).seconds());
  }

  std::optional<StagePlan> plan() {
    if (int(units.size()) < stages) return std::nullopt;
    StagePlan result;
    double slowest = slowestStage();
    double again = leastRecomputation();
    result.bound = seconds(std::max(slowest, (before.back() + again) / double(stages)), before.back() + again, true);
    if (!problem.firstUnits.empty())
      result.firstUnits = problem.firstUnits;
    else if (!cutByTime(slowest * (1 + 1e-9), result.firstUnits))
      return std::nullopt;
    finish(result);
    // Where memory makes the first ranks recompute, they get fewer units.
    if (problem.firstUnits.empty() && stages > 1 && stages == problem.ranks() &&
        (!result.fits || result.seconds > result.bound * 1.001))
      if (StagePlan other; cutByMemory(slowest, other.firstUnits)) {
        finish(other);
        if (std::pair(!other.fits, other.seconds) < std::pair(!result.fits, result.seconds)) {
          other.bound = result.bound;
          result = std::move(other);
        }
      }
    return result;
  }

private:
  // A step's seconds when the slowest rank needs `slowest` for each chunk of a microbatch and all need `sum`.
  double seconds(double slowest, double sum, bool least) const {
    double microbatches = double(problem.model->setting.microbatches);
    if (!problem.profile) return sum * microbatches;
    double ranks = double(problem.ranks()), chunks = double(problem.profile->chunks);
    double bubble = least ? problem.profile->leastBubble : problem.profile->bubble;
    // At least the mean load of a rank; chunks of one rank need not all be slow.
    double rank = chunks > 1 && least ? std::max(sum / ranks, slowest) : slowest * chunks;
    return std::max(rank, sum / ranks) * microbatches + bubble * sum / ranks;
  }

  // Seconds of a microbatch that recomputation takes at least, however the units lie on the ranks: what all ranks
  // together can keep, the rest computed again where that saves most bytes for the time. Infinite when it cannot fit.
  double leastRecomputation() const {
    const UnitLayout &layout = *problem.model->layout;
    double state = 0, workspace = infinity, largest = 0, mostLive = 0, room = 0;
    for (const UnitState &shared : problem.state->shared) state += shared.bytes();
    for (size_t kind = 0; kind < layout.sizeOfKind.size(); ++kind) {
      double bytes = infinity;
      for (const UnitActivity &activity : problem.activity->kinds[kind]) bytes = std::min(bytes, activity.workspace);
      workspace = std::min(workspace, bytes);
      largest = std::max(largest, bytes);
      state += problem.state->kinds[kind].bytes() * double(layout.sizeOfKind[kind]);
    }
    if (problem.ranks() == 1) workspace = largest;
    for (int rank = 0; rank < problem.ranks(); ++rank) {
      mostLive = std::max(mostLive, problem.live(rank));
      room += std::max(0.0, problem.memoryLimit - workspace) / problem.live(rank);
    }
    room -= state / mostLive;
    Recompute plain = problem.recompute.value_or(Recompute::None);
    double kept = 0, again = 0;
    std::vector<std::pair<double, double>> savings; // seconds for a byte, bytes
    for (size_t kind = 0; kind < layout.sizeOfKind.size(); ++kind) {
      const UnitActivity &first = problem.activity->of(int(kind), plain);
      double most = 0, price = infinity, count = double(layout.sizeOfKind[kind]);
      for (Recompute how : problem.recompute ? std::vector<Recompute>{plain} : problem.allowed) {
        const UnitActivity &other = problem.activity->of(int(kind), how);
        if (other.kept >= first.kept) continue;
        most = std::max(most, first.kept - other.kept);
        price = std::min(price, std::max(0.0, other.seconds() - first.seconds()) / (first.kept - other.kept));
      }
      kept += first.kept * count;
      if (most > 0) savings.emplace_back(price, most * count);
    }
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
      RankLoad load(problem, problem.rankOf(stage));
      int start = end;
      double seconds = 0;
      while (start > stage) {
        load.add(start - 1);
        if (!load.fit(seconds) || seconds > slowest) break;
        --start;
      }
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
      RankLoad load(problem, rank);
      std::vector<int> mine;
      for (int stage = 0; stage < stages; ++stage) {
        if (problem.rankOf(stage) != rank) continue;
        int end = stage + 1 < stages ? plan.firstUnits[size_t(stage) + 1] : int(units.size());
        for (int unit = plan.firstUnits[size_t(stage)]; unit < end; ++unit) {
          load.add(unit);
          mine.push_back(unit);
        }
      }
      double time = 0;
      plan.fits = load.fit(time) && plan.fits;
      load.assign(mine, plan.recompute);
      slowest = std::max(slowest, time);
      sum += time;
      plan.bytes = std::max(plan.bytes, load.memory());
      once = std::max(once, load.state.update + load.state.exposed);
    }
    plan.seconds = seconds(slowest / double(std::max(1, stages / problem.ranks())), sum, false) + once;
  }

  const StageProblem &problem;
  const std::vector<Unit> &units;
  int stages;
  std::vector<double> before; // seconds of all units before one
};

} // namespace

std::optional<StagePlan> planStages(const StageProblem &problem) { return StagePlanner(problem).plan(); }

} // namespace cleave::planner
