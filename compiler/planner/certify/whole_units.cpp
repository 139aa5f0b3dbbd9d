#include "compiler/planner/certify/whole_units.h"
#include "compiler/planner/certify/sorted_savings.h"
#include "compiler/planner/facts/whole_recomputation.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/pipeline/stage_transfers.h"
#include "compiler/tuning.h"
#include <algorithm>
#include <cmath>

namespace cleave::planner {
namespace {

// A bound that misses its goal is sought in so many halvings.
constexpr int halvings = 14;

// The least cost of a unit of one kind, and the saving of computing it again.
struct KindCosts {
  Cost plain;
  struct Way {
    double seconds = 0, saved = 0, savedOfLast = 0, beside = 0; // beyond the plain way's seconds; bytes
  };
  std::vector<Way> ways;                        // of computing it again
  double compute = 0;                           // seconds that collectives may hide behind, the plain way
  double backwardInput = 0, backwardWeight = 0; // the least; the most, of any way
};

// The sum of a rank's units.
struct RankSum {
  std::vector<std::pair<int, double>> kinds; // and how many units
  std::vector<std::vector<double>> slots;    // of a given cut: beside `kinds`, of each unit's stage
  Cost cost;                                 // of the plain way, and state
  double compute = 0, weights = 0;
};

struct RankTimes {
  double seconds = infinity;       // of one microbatch, with what must be computed again
  double forward = 0, weights = 0; // of `seconds`; weights' gradients at most
  double again = infinity;         // of `seconds`: computed again
  double atEnd = 0;                // what a rank does once a step
};

class WholeUnits {
public:
  explicit WholeUnits(const StageProblem &problem)
      : problem(problem), model(*problem.model), layout(*model.layout), units(layout.units),
        ways(problem.recompute ? std::vector<Recompute>{*problem.recompute} : problem.allowed),
        microbatches(double(model.setting.microbatches)), stages(problem.stages()), least(leastTransfers(problem)),
        share(chainShare(model.cluster->device, problem.ranks())) {
    splits = problem.profile && problem.profile->splitsBackward;
    if (problem.isGiven()) givenWays();
    gatherKinds();
    gatherCopies();
    const std::vector<LeastHeld> held = leastHeld(problem);
    sendsBefore.assign(1, {});
    for (int s = 0; s + 1 < stages; ++s)
      sendsBefore.push_back({sendsBefore.back().forward + least.sendForward[size_t(s)],
                             sendsBefore.back().backward + least.sendBackward[size_t(s) + 1]});
    heldOfRank.assign(size_t(problem.ranks()), 0.0);
    for (int s = 0; s < stages; ++s) heldOfRank[size_t(problem.rankOf(s))] += held[size_t(s)].seconds;
  }

  double bound(double goal) {
    if (int(units.size()) < stages) return infinity;
    if (!problem.firstUnits.empty()) return boundOfCut();
    double low = 0, high = goal;
    auto isPossible = [&](double seconds) { return stages == problem.ranks() ? canCut(seconds) : canCount(seconds); };
    if (goal == infinity) {
      high = std::max(1e-9, before.back().forward + before.back().backward) * microbatches;
      for (int doublings = 0; !isPossible(high); ++doublings) {
        if (doublings == 8) return infinity; // eight times as slow as one device: nothing fits
        low = high;
        high *= 4;
      }
    } else if (!isPossible(high))
      return high;
    for (int i = 0; i < halvings; ++i) {
      const double middle = (low + high) / 2;
      (isPossible(middle) ? high : low) = middle;
    }
    return low;
  }

  std::vector<double> leastAgainOfCut() const {
    std::vector<double> again;
    for (int rank = 0; rank < problem.ranks(); ++rank) {
      int first = -1, end = 0, firstStage = 0;
      again.push_back(timesOfCut(rank, first, end, firstStage).again);
    }
    return again;
  }

private:
  struct Sums {                       // of all units before one, at least
    double forward = 0, backward = 0; // backward: what the unit before waits for
  };

  void givenWays() {
    ways.clear();
    const std::vector<Recompute> &given = problem.ofStage.empty() ? problem.ofUnit : problem.ofStage;
    for (Recompute how : everyRecompute)
      if (std::find(given.begin(), given.end(), how) != given.end()) ways.push_back(how);
  }

  void gatherKinds() {
    for (int kind = 0; kind < layout.kinds; ++kind) {
      KindCosts one;
      one.plain = problem.activity->of(kind, ways.front());
      one.compute = one.plain.compute();
      one.backwardInput = infinity;
      double beside = infinity, leaving = infinity;
      for (Recompute how : ways) {
        const Cost &other = problem.activity->of(kind, how);
        one.backwardInput = std::min(one.backwardInput, other.backwardInput);
        one.backwardWeight = std::max(one.backwardWeight, other.backwardWeight);
        beside = std::min(beside, other.beside);
        leaving = std::min(leaving, other.largestLeaving);
        if (other.compute() > 0) leastForward = std::min(leastForward, other.computeForward() / other.compute());
        const double once = other.keptOfLast - one.plain.keptOfLast +
                            2 * (other.keptOnHost - one.plain.keptOnHost) / tuning::hostBuckets;
        if (other.kept < one.plain.kept || once < 0)
          one.ways.push_back(
              {std::max(0.0, other.seconds() - one.plain.seconds()), one.plain.kept - other.kept, once, other.beside});
      }
      one.plain.beside = beside;
      one.plain.largestLeaving = leaving;
      kinds.push_back(std::move(one));
    }
    before.push_back({});
    leastUnit = {infinity, infinity};
    for (const Unit &unit : units) {
      const KindCosts &one = kinds[size_t(unit.kind)];
      Sums sum = before.back();
      sum.forward += one.plain.forward;
      sum.backward += one.backwardInput;
      if (!splits) sum.backward += problem.activity->of(unit.kind, ways.front()).backwardWeight;
      leastUnit.forward = std::min(leastUnit.forward, sum.forward - before.back().forward);
      leastUnit.backward = std::min(leastUnit.backward, sum.backward - before.back().backward);
      before.push_back(sum);
      double fastest = infinity;
      for (Recompute how : ways) fastest = std::min(fastest, problem.activity->of(unit.kind, how).seconds());
      busy += fastest * microbatches / double(problem.ranks());
    }
  }

  void gatherCopies() {
    const size_t count = units.size();
    if (problem.ranks() == 1) return;
    // The first and the last rank have copies of a parameter that their units share.
    if (problem.rankOf(0) == problem.rankOf(stages - 1)) return;
    const GroupShape pair = pairOfEnds(problem);
    for (size_t p = 0; p < layout.shared.size(); ++p) {
      const std::vector<int> &readers = layout.shared[p].units;
      if (readers.front() == 0 && readers.back() == int(count) - 1)
        sumOfCopies +=
            collectiveSeconds(*model.cluster, Collective::AllReduce, pair, problem.state->shared[p].gradients);
    }
  }

  void add(RankSum &sum, int kind, double count) const {
    const KindCosts &one = kinds[size_t(kind)];
    auto found =
        std::find_if(sum.kinds.begin(), sum.kinds.end(), [&](const auto &other) { return other.first == kind; });
    if (found == sum.kinds.end())
      sum.kinds.emplace_back(kind, count);
    else
      found->second += count;
    sum.cost.add(problem.state->kinds[size_t(kind)], count).add(one.plain, count);
    sum.compute += one.compute * count;
    sum.weights += one.backwardWeight * count;
  }

  // Parameters that several units read are on the rank of each of them.
  void addShared(RankSum &sum, int unit, std::vector<bool> &seen) const {
    for (size_t p = 0; p < layout.shared.size(); ++p) {
      const std::vector<int> &readers = layout.shared[p].units;
      if (seen[p] || std::find(readers.begin(), readers.end(), unit) == readers.end()) continue;
      seen[p] = true;
      sum.cost.add(problem.state->shared[p]);
    }
  }

  using Savings = std::vector<SortedSavings::Saving>;

  // Adds what computing units of a kind again saves, each byte at the price of its segment of the lower hull of the
  // ways that stand beside no more than `beside` bytes.
  void addWays(Savings &savings, int kind, double count, double live, double beside) const {
    double bytes = 0, at = 0;
    while (true) {
      double price = infinity, nextBytes = 0, nextAt = 0;
      for (const KindCosts::Way &way : kinds[size_t(kind)].ways) {
        const double saved = live * way.saved - way.savedOfLast, seconds = way.seconds;
        if (way.beside > beside || saved <= bytes) continue;
        if (const double now = (seconds - at) / (saved - bytes); now < price)
          price = now, nextBytes = saved, nextAt = seconds;
      }
      if (price == infinity) return;
      savings.push_back({std::max(0.0, price), (nextBytes - bytes) * count});
      bytes = nextBytes;
      at = nextAt;
    }
  }

  // Seconds that saving `over` bytes costs at least, by the ways to compute units again, which may be computed in
  // parts. The units of the commonest kind of a given cut are whole.
  double leastCost(const RankSum &sum, double live, double over) const {
    double best = infinity;
    const size_t whole = wholeKind(sum);
    // The largest of what stands beside the rest while it is computed again; none is.
    auto attempt = [&](double beside, double left) {
      Savings savings;
      std::vector<AgainChoice> choices = {{}};
      for (size_t k = 0; k < sum.kinds.size(); ++k) {
        auto [kind, count] = sum.kinds[k];
        if (k != whole) {
          addWays(savings, kind, count, live, beside);
          continue;
        }
        std::vector<AgainWay> open;
        for (const KindCosts::Way &way : kinds[size_t(kind)].ways) {
          if (way.beside <= beside) open.push_back({way.seconds, std::max(0.0, way.saved), way.savedOfLast});
        }
        choices = wholeRecomputation(std::move(open), sum.slots[k]);
      }
      const SortedSavings sorted(std::move(savings));
      for (const AgainChoice &choice : choices) {
        if (choice.seconds >= best) continue;
        const SortedSavings::Spent spent = sorted.spend(left - choice.saved);
        if (spent.left <= 1e-9 * problem.memoryLimit) best = std::min(best, choice.seconds + spent.seconds);
      }
    };
    for (auto [limitKind, unused] : sum.kinds)
      for (const KindCosts::Way &limit : kinds[size_t(limitKind)].ways)
        attempt(limit.beside, over + std::max(0.0, limit.beside - sum.cost.beside));
    return best;
  }

  // Which of the rank's kinds has most units; none where the cut is open.
  static size_t wholeKind(const RankSum &sum) {
    if (sum.slots.empty()) return sum.kinds.size();
    const auto most = std::ranges::max_element(sum.kinds, {}, [](const auto &kind) { return kind.second; });
    return size_t(most - sum.kinds.begin());
  }

  RankTimes timesOf(const RankSum &sum, int rank, double buffers) const {
    const Cost &plain = sum.cost;
    const double live = problem.leastLive(rank);
    double kept = live * problem.kept(plain);
    if (const size_t whole = wholeKind(sum); whole < sum.kinds.size())
      for (double slots : sum.slots[whole])
        kept += (slots - live) * problem.kept(kinds[size_t(sum.kinds[whole].first)].plain);
    const double bytes = deviceMemory(model.setting, plain, kept, buffers).total();
    double again = 0;
    if (bytes > problem.memoryLimit) again = leastCost(sum, live, bytes - problem.memoryLimit);
    RankTimes times;
    if (again == infinity) return times;
    times.seconds = plain.seconds() + again + heldOfRank[size_t(rank)];
    times.again = again;
    times.forward = plain.forward;
    times.weights = sum.weights;
    const double late = plain.hideable - microbatches * hidingOf(overlapOf(model)) * (sum.compute + again);
    times.atEnd = plain.update + plain.exposed + std::max({0.0, late, lateAsItIs(sum, again)});
    if (rank == problem.rankOf(0) || rank == problem.rankOf(stages - 1)) times.atEnd += sumOfCopies;
    return times;
  }

  // Without stages it is known what links make the passes wait if nothing is computed again. A second of computing
  // again, which is counted elsewhere, leaves more room: t = shared / turn falls by t / turn at most, t no more than
  // what is late.
  double lateAsItIs(const RankSum &sum, double again) const {
    if (problem.ranks() > 1) return 0;
    const PassSeconds passes = PassSeconds::of(sum.cost, microbatches);
    const Hidden hidden = hide(model, BesideSeconds::of(sum.cost), passes);
    const double late = sum.cost.hideable - hidden.seconds + hidden.contention;
    const Window window = windowOf(model, model.setting.zero, passes);
    const double turn = window.turn(), steepest = turn > 0 ? std::max(1.0, late / turn) : 1;
    return late - steepest * microbatches * again;
  }

  // Compute hides backward for the most part: at most this part of a unit's, whatever others are beside it.
  double hidingOf(Overlap overlap) const {
    return std::max(overlap.forward, overlap.forward * leastForward + overlap.backward * (1 - leastForward));
  }

  // The seconds of a rank whose first stage, `stage`, begins with unit `first` and whose last stage ends before `end`.
  double seconds(const RankTimes &times, int rank, const Sums &first, const Sums &end, int stage) const {
    if (times.seconds == infinity) return infinity;
    // The seconds of a path to the end of a rank, and of the rank's work after it.
    auto ofPath = [&](double passes, double after) {
      return std::max(share * passes + after, leastOnSharedCores(model.cluster->device, problem.ranks(), passes, busy));
    };
    if (problem.profile && !problem.profile->isFlushed()) return ofPath(microbatches * times.seconds, times.atEnd);
    const Sums &sends = sendsBefore[size_t(stage)], &allSends = sendsBefore.back();
    const double work = microbatches * times.seconds, there = first.forward + sends.forward;
    const double done = splits ? microbatches * (times.seconds - times.weights) : work;
    const Cost &zero = problem.state->kinds[size_t(units[0].kind)];
    const double atEndOfFirst = zero.update + zero.exposed + (rank == problem.rankOf(0) ? 0 : sumOfCopies);
    const double back = first.backward + sends.backward;
    double seconds = std::max(ofPath(there + work, times.atEnd), ofPath(there + done + back, atEndOfFirst));
    if (stages != problem.ranks() || followsTimes(model.setting.schedule)) return seconds;
    // The first gradient comes back when a microbatch has gone through all stages; before that the rank has done no
    // more forward passes than it keeps activations of.
    const double forward = std::min(microbatches, problem.leastLive(rank));
    const double turn = before.back().forward + allSends.forward + before.back().backward - end.backward +
                        allSends.backward - sends.backward;
    return std::max({seconds, ofPath(turn + work - forward * times.forward, times.atEnd),
                     ofPath(turn + done - forward * times.forward + back, atEndOfFirst)});
  }

  bool canCut(double limit) const {
    int end = int(units.size());
    for (int stage = stages - 1; stage >= 0; --stage) {
      const int rank = problem.rankOf(stage);
      const double buffers = least.bytesOf(problem, stage);
      RankSum sum;
      std::vector<bool> seen(layout.shared.size(), false);
      int start = end;
      while (start > stage) {
        add(sum, units[size_t(start) - 1].kind, 1);
        addShared(sum, start - 1, seen);
        RankTimes times = timesOf(sum, rank, buffers);
        if (seconds(times, rank, before[size_t(start) - 1], before[size_t(end)], stage) > limit) break;
        --start;
      }
      if (start == end) return false;
      end = start;
    }
    return end == 0;
  }

  // The units that surely are on a rank with several stages: the first unit, the last unit.
  RankSum surely(int rank, std::vector<bool> &seen) const {
    RankSum sum;
    const int last = int(units.size()) - 1;
    for (int unit : {0, last})
      if (problem.rankOf(unit == 0 ? 0 : stages - 1) == rank) {
        add(sum, units[size_t(unit)].kind, 1);
        addShared(sum, unit, seen);
        if (last == 0) break;
      }
    return sum;
  }

  bool canCount(double limit) const {
    int common = 0, left = 0;
    double most = -1;
    for (int kind = 0; kind < layout.kinds; ++kind)
      if (double all = kinds[size_t(kind)].plain.seconds() * layout.sizeOfKind[size_t(kind)]; all > most) {
        most = all;
        common = kind;
      }
    left = layout.sizeOfKind[size_t(common)];
    left -= units.front().kind == common;
    left -= units.size() > 1 && units.back().kind == common;
    for (int rank = 0; rank < problem.ranks(); ++rank) {
      std::vector<bool> seen(layout.shared.size(), false);
      const RankSum fixed = surely(rank, seen);
      int firstStage = stages;
      double buffers = 0;
      for (int s = stages; s-- > 0;)
        if (problem.rankOf(s) == rank) {
          firstStage = s;
          buffers += least.bytesOf(problem, s);
        }
      // A unit in every stage before it.
      Sums first = firstStage == 0 ? Sums{} : before[1];
      for (int s = 1; s < firstStage; ++s) {
        first.forward += leastUnit.forward;
        first.backward += leastUnit.backward;
      }
      auto fits = [&](int count) {
        RankSum sum = fixed;
        if (count > 0) add(sum, common, double(count));
        return seconds(timesOf(sum, rank, buffers), rank, first, {}, firstStage) <= limit;
      };
      if (!fits(0)) return false;
      int low = 0, high = left + 1;
      while (high - low > 1) (fits((low + high) / 2) ? low : high) = (low + high) / 2;
      left -= low;
      if (left <= 0) return true;
    }
    return false;
  }

  double boundOfCut() const {
    double bound = 0;
    for (int rank = 0; rank < problem.ranks(); ++rank) {
      int first = -1, end = 0, firstStage = 0;
      const RankTimes times = timesOfCut(rank, first, end, firstStage);
      bound = std::max(bound, seconds(times, rank, before[size_t(first)], before[size_t(end)], firstStage));
    }
    return bound;
  }

  // With the units of the rank's stages; `first`, `end`: of its first stage, after its last.
  RankTimes timesOfCut(int rank, int &first, int &end, int &firstStage) const {
    RankSum sum;
    std::vector<bool> seen(layout.shared.size(), false);
    double buffers = 0;
    for (int s = 0; s < stages; ++s) {
      if (problem.rankOf(s) != rank) continue;
      const int begin = problem.firstUnits[size_t(s)];
      end = s + 1 < stages ? problem.firstUnits[size_t(s) + 1] : int(units.size());
      if (first < 0) {
        first = begin;
        firstStage = s;
      }
      buffers += transferBytes(problem, s, begin, end);
      for (int unit = begin; unit < end; ++unit) {
        const int kind = units[size_t(unit)].kind;
        add(sum, kind, 1);
        addShared(sum, unit, seen);
        sum.slots.resize(sum.kinds.size());
        const auto at = std::ranges::find(sum.kinds, kind, [](const auto &one) { return one.first; });
        sum.slots[size_t(at - sum.kinds.begin())].push_back(problem.live(s));
      }
    }
    return timesOf(sum, rank, buffers);
  }

  const StageProblem &problem;
  const SplitModel &model;
  const UnitLayout &layout;
  const std::vector<Unit> &units;
  std::vector<Recompute> ways;
  double microbatches;
  int stages;
  bool splits = false;
  std::vector<KindCosts> kinds;
  std::vector<Sums> before;
  Sums leastUnit;
  std::vector<Sums> sendsBefore; // messages between the first stage and each
  double leastForward = 1;       // part of compute
  LeastTransfers least;
  double share;    // chainShare()
  double busy = 0; // seconds that a rank's passes take at least, on average
  double sumOfCopies = 0;
  std::vector<double> heldOfRank; // seconds of a microbatch
};

} // namespace

std::vector<double> leastAgainOfCut(const StageProblem &problem) { return WholeUnits(problem).leastAgainOfCut(); }

double boundOfWholeUnits(const StageProblem &problem, double goal) { return WholeUnits(problem).bound(goal); }

} // namespace cleave::planner
