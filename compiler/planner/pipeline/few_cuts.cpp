#include "compiler/planner/pipeline/few_cuts.h"
#include "compiler/planner/infinity.h"
#include <algorithm>
#include <cmath>

namespace cleave::planner {
namespace {

// Cuts that are simulated, and actions of their schedules in all; cuts where simulating them says nothing.
constexpr double mostCuts = 2e4, mostSimulated = 4e6, mostUntimed = 300;

// The part by which sums in another order may differ.
constexpr double rounding = 1e-12;

class CutTimes {
public:
  CutTimes(const StageProblem &problem, double worth, const SearchClock &clock)
      : problem(problem), worth(worth), clock(clock), units(problem.model->layout->units), stages(problem.stages()),
        microbatches(double(problem.model->setting.microbatches)),
        share(chainShare(problem.model->cluster->device, problem.ranks())), work(size_t(problem.ranks()), 0.0),
        waits(size_t(problem.ranks()), 0.0),
        ways(problem.recompute ? std::vector<Recompute>{*problem.recompute} : problem.allowed),
        isTimed(saysSimulating()) {
    for (int kind = 0; kind < problem.model->layout->kinds; ++kind) moreOfKind.push_back(longerWindow(kind));
  }

  bool isPossible() const {
    if (!problem.firstUnits.empty() || int(units.size()) < stages) return false;
    const double most = isTimed ? std::min(mostCuts, mostSimulated / (2 * microbatches * stages)) : mostUntimed;
    double cuts = 1;
    for (int s = 1; s < stages && cuts <= most; ++s) cuts = cuts * (double(units.size()) - s) / s;
    return cuts <= most;
  }

  std::vector<TimedCut> all() {
    plan.recompute.assign(units.size(), ways.front());
    plan.firstUnits.assign(size_t(stages), 0);
    sumWays();
    if (share * before.back() < worth) place(0, 0);
    std::ranges::stable_sort(found, {}, &TimedCut::seconds);
    return std::move(found);
  }

private:
  // Is a step's time known from the stages, and only backward passes are longer where something is computed again (on
  // cores of its own a device may also take longer forward: that makes nothing earlier)? The transfer to the host may
  // be late, and is smaller then.
  bool saysSimulating() const {
    const Setting &setting = problem.model->setting;
    if (!problem.profile || !problem.profile->isFlushed() || followsTimes(setting.schedule)) return false;
    if (movesActivations(setting.offload)) return false;
    if (problem.isGiven()) return true;
    // A longer pass may leave its core to others at a better time.
    if (ways.size() > 1 && problem.model->cluster->device.coreShare < 1) return false;
    for (int kind = 0; kind < problem.model->layout->kinds; ++kind) {
      const Cost &plain = problem.activity->of(kind, ways.front());
      for (Recompute how : ways) {
        const Cost &other = problem.activity->of(kind, how);
        const double input = other.backwardInput - plain.backwardInput;
        const double weight = other.backwardWeight - plain.backwardWeight;
        const double forward = other.forward - plain.forward, unseen = rounding * plain.forward;
        if (forward < -unseen || input + weight < 0) return false;
        if (problem.profile->splitsBackward && std::min(input, weight) < 0) return false;
      }
    }
    return true;
  }

  template <typename Of> double least(int kind, std::optional<Recompute> given, Of of) const {
    if (given) return of(problem.activity->of(kind, *given));
    double least = infinity;
    for (Recompute how : ways) least = std::min(least, of(problem.activity->of(kind, how)));
    return least;
  }

  // A microbatch's way through the units before each, and its gradient's way back. Weights' gradients may come later
  // where they are passes of their own.
  void sumWays() {
    const bool isThere = problem.profile && !problem.profile->isFlushed(); // before the step begins
    const bool splits = problem.profile && problem.profile->splitsBackward;
    before.push_back(0);
    for (const Unit &unit : units)
      before.push_back(before.back() + (isThere ? 0 : least(unit.kind, std::nullopt, [&](const Cost &one) {
                         return one.forward + one.backwardInput + (splits ? 0 : one.backwardWeight);
                       })));
  }

  // Stages from this one on, whose first unit is `first`. A rank does its work after the first microbatch has come to
  // it and, but for weights' gradients, before the last gradient goes down from it.
  void place(int stage, int first) {
    plan.firstUnits[size_t(stage)] = first;
    const auto rank = size_t(problem.rankOf(stage));
    const double had = work[rank];
    const bool isLast = stage + 1 == stages, splits = problem.profile && problem.profile->splitsBackward;
    bool isFirst = true;
    for (int other = 0; other < stage; ++other) isFirst = isFirst && problem.rankOf(other) != int(rank);
    if (isFirst) waits[rank] = splits ? 0 : before[size_t(first)];
    const int most = int(units.size()) - (stages - stage - 1); // it ends there at the latest
    for (int end = first + 1; end <= most && !clock.isOver(); ++end) {
      const std::optional<Recompute> given = problem.given(stage, end - 1);
      plan.recompute[size_t(end) - 1] = given.value_or(ways.front());
      work[rank] += least(units[size_t(end) - 1].kind, given, [](const Cost &one) { return one.seconds(); });
      if (share * (waits[rank] + work[rank] * microbatches) >= worth) break;
      if (isLast && end == most) add();
      if (!isLast) place(stage + 1, end);
    }
    work[rank] = had;
  }

  void add() {
    if (!isTimed) return found.push_back({plan.firstUnits, 0, false});
    const PlanEvaluation evaluation = evaluatePlan(problem, plan);
    const bool isOpen = !problem.isGiven() && ways.size() > 1;
    const double seconds = evaluation.predicted.stepSeconds - std::min(evaluation.notHidden, mostHiddenByMore());
    if (seconds < worth && (evaluation.fits || isOpen)) found.push_back({plan.firstUnits, seconds, evaluation.fits});
  }

  // Seconds of a rank's collectives that could hide behind what is computed again: in the passes that hide them, which
  // may be those of one microbatch.
  double mostHiddenByMore() const {
    const Overlap overlap = overlapOf(*problem.model);
    if (problem.isGiven() || (overlap.forward <= 0 && overlap.backward <= 0)) return 0;
    std::vector<double> more(work.size(), 0.0);
    for (int stage = 0; stage < stages; ++stage) {
      const int end = stage + 1 < stages ? plan.firstUnits[size_t(stage) + 1] : int(units.size());
      for (int unit = plan.firstUnits[size_t(stage)]; unit < end; ++unit)
        more[size_t(problem.rankOf(stage))] += moreOfKind[size_t(units[size_t(unit)].kind)];
    }
    return std::ranges::max(more);
  }

  // Seconds by which the passes that hide may take longer in a step, for a unit of a kind. The wait for others' use of
  // a link, shared / max(beside, turn) in hide(), may be shorter by as much: links are busy in these passes only, of
  // which `overlap` at least takes turns.
  double longerWindow(int kind) const {
    const SplitModel &model = *problem.model;
    const Device &device = model.cluster->device;
    auto turn = [&](Recompute how, int zero) {
      return windowOf(model, zero, PassSeconds::of(problem.activity->of(kind, how), microbatches)).turn();
    };
    // Where ZeRO stages are mixed, collectives of both have passes of their own.
    auto mostOf = [&](int zero) {
      double most = 0;
      for (Recompute how : ways) most = std::max(most, turn(how, zero) - turn(ways.front(), zero));
      return most;
    };
    const double most = mostOf(model.setting.zero) + (model.lowers.empty() ? 0 : mostOf(model.setting.lowerZero));
    const double overlap =
        device.gradientOverlap > 0 ? std::min(device.gradientOverlap, device.overlap) : device.overlap;
    return overlap > 0 ? most / std::min(1.0, overlap) : most;
  }

  const StageProblem &problem;
  double worth;
  const SearchClock &clock;
  const std::vector<Unit> &units;
  int stages;
  double microbatches, share;
  std::vector<double> work, waits; // of each rank: for one microbatch; for the first and the last
  std::vector<double> before;      // by unit
  std::vector<Recompute> ways;
  std::vector<double> moreOfKind; // longerWindow()
  bool isTimed;
  StagePlan plan;
  std::vector<TimedCut> found;
};

} // namespace

std::optional<std::vector<TimedCut>> timeEachCut(const StageProblem &problem, double worth, const SearchClock &clock) {
  CutTimes times(problem, worth, clock);
  if (!times.isPossible()) return std::nullopt;
  return times.all();
}

} // namespace cleave::planner
