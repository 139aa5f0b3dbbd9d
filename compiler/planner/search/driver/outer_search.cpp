#include "compiler/planner/search/driver/outer_search.h"
#include "compiler/planner/infinity.h"
#include "compiler/planner/search/moves/move.h"
#include "compiler/planner/search/space/setting_trials.h"
#include "compiler/planner/search/space/settings.h"
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <queue>

namespace cleave::planner {
namespace {

// Settings tried when the time is over and nothing fits.
constexpr size_t mostLean = 8;

class OuterSearch {
public:
  OuterSearch(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster, const Constraints &constraints,
              const SearchOptions &options, Cells &cells)
      : problem(problem), facts(facts), cluster(cluster), options(options),
        space(problem, facts, cluster, constraints, options), cells(cells), found(options),
        clock(options.seconds, tellProgress()), trials(space, cells, found, clock) {
    outcome.bound = infinity;
  }

  Outcome run() {
    outcome.reason = space.gather();
    outcome.notes = space.notes;
    if (!outcome.reason) return std::move(outcome);
    queueSettings();
    trySettings();
    applyMoves();
    outcome.bound = std::min(sumBounds(), found.incumbent());
    outcome.wasStopped = clock.isOver();
    if (outcome.isComplete && found.best && outcome.wasStopped)
      outcome.notes.push_back(fmt::format(
          "the search was stopped after {:.1f} s: all settings were looked at, but the best plans and the bounds of "
          "others might still have been improved",
          clock.elapsed()));
    for (const std::string &refusal : trials.refusals) outcome.notes.push_back("left out: " + refusal);
    outcome.candidates = trials.candidates;
    if (!found.best && !found.leastMemory && outcome.reason) outcome.reason = space.whyNothing();
    outcome.byMesh = found.fastestFirst();
    outcome.best = std::move(found.best);
    outcome.leastMemory = std::move(found.leastMemory);
    return std::move(outcome);
  }

private:
  void applyMoves() {
    Search search{space, cells, found, trials, clock};
    const std::vector<std::string> &asked = options.moves;
    for (const Move &move : allMoves()) {
      if (!found.best) return;
      if (!asked.empty() && std::ranges::find(asked, move.name) == asked.end()) continue;
      doing = move.doing;
      search.bound = sumBounds();
      const double before = found.incumbent(), start = clock.elapsed();
      move.apply(search);
      const double bound = sumBounds(); // infinite where nothing is open
      const bool isKnown = std::isfinite(bound) && std::isfinite(search.bound);
      outcome.moves.push_back({move.name, clock.elapsed() - start, before - found.incumbent(),
                               isKnown ? std::max(0.0, bound - search.bound) : 0});
    }
  }

  double sumBounds() const {
    double bound = std::min(outcome.bound, trials.bound);
    for (const OpenPlan &plan : trials.open) bound = std::min(bound, plan.bound);
    return bound;
  }

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
    for (size_t i = 0; i < space.settings.size(); ++i) queue.push({flopsBound(space.settings[i]), i, Entry::Flops});
  }

  // A microbatch through the whole model, on the devices of one stage at their peak.
  double flopsBound(const Setting &setting) const {
    // A measured peak is one of some product; others may be a little faster.
    const Device &device = cluster.device;
    const double peak = device.flopsAt(problem.precision) / device.computeFactor *
                        std::max(1.0, device.computeEfficiency * std::max(1.0, device.batchedEfficiency));
    const double flops = facts.structure->layout->heavyFlops * double(problem.batch) / double(problem.samples);
    double ways = double(setting.batchWays() * setting.tp * setting.cp * setting.microbatches);
    for (const LaidAxis &axis : setting.laidAxes()) ways *= double(axis.size);
    return space.stepBound(setting, flops / ways / peak);
  }

  // The most promising first, until none can be faster than what was found.
  void trySettings() {
    while (!queue.empty()) {
      Entry entry = queue.top();
      queue.pop();
      if (entry.bound >= found.worthTrying()) {
        outcome.bound = std::min(outcome.bound, entry.bound);
        break;
      }
      reached = entry.bound;
      if (clock.isOver() && found.hasAny()) return stopAt(entry);
      advance(entry);
    }
  }

  // The time is over. Where nothing that fits has been found, a few settings that need little are tried all the same.
  void stopAt(const Entry &entry) {
    outcome.bound = std::min(outcome.bound, entry.bound);
    outcome.isComplete = false;
    if (!found.best && options.worth == infinity) tryLean(entry.bound);
    outcome.notes.push_back(fmt::format(
        "the search was stopped after {:.1f} s with settings left, which the optimality gap counts", clock.elapsed()));
  }

  // Tries every mesh's setting with most microbatches, and so the least activations at a time; the most promising
  // first.
  void tryLean(double known) {
    std::vector<std::pair<double, size_t>> leanest;      // bound, setting
    for (size_t i = 0; i < space.settings.size(); ++i) { // those of a mesh follow each other
      const Setting &setting = space.settings[i];
      const bool isOfLast = !leanest.empty() && sameMesh(space.settings[leanest.back().second], setting);
      if (!isOfLast)
        leanest.emplace_back(flopsBound(setting), i);
      else if (space.settings[leanest.back().second].microbatches < setting.microbatches)
        leanest.back() = {flopsBound(setting), i};
    }
    std::ranges::sort(leanest);
    for (size_t i = 0; i < std::min(leanest.size(), mostLean) && !found.best; ++i) {
      const Setting &setting = space.settings[leanest[i].second];
      Cell &cell = cells.at(setting);
      cells.solve(cell);
      if (Status tried = trials.trySetting(setting, cell, known); !tried) outcome.reason = tried;
    }
  }

  SearchClock::Tell tellProgress() {
    if (!options.progress) return {};
    return [this](double elapsed) {
      double bound = std::min({outcome.bound, trials.bound, reached});
      for (const std::vector<OpenPlan> *plans : {&trials.open, &trials.mixes})
        for (const OpenPlan &plan : *plans) bound = std::min(bound, plan.bound);
      if (found.best) toldBest = found.incumbent(); // those found are recorded anew when they are improved
      options.progress({elapsed, toldBest, bound, trials.candidates, queue.size() + 1, doing});
    };
  }

  void advance(Entry entry) {
    const Setting &setting = space.settings[entry.setting];
    if (entry.known == Entry::Solved) {
      Cell &cell = cells.at(setting);
      cells.solve(cell); // if it was another's that is known
      const double bound = space.stepBound(setting, cell.secondsBound);
      if (bound > entry.bound) {
        entry.bound = bound;
        if (!cell.reason) outcome.reason = cell.reason;
        if (bound < infinity) queue.push(entry);
        return;
      }
      const Status tried = trials.trySetting(setting, cell, entry.bound);
      if (!tried) outcome.reason = tried;
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

  const Problem &problem;
  const ProblemFacts &facts;
  const Cluster &cluster;
  const SearchOptions &options;
  SearchSpace space;
  Cells &cells;
  FoundPlans found;
  SearchClock clock;
  SettingTrials trials;
  std::priority_queue<Entry> queue;
  double reached = 0;     // bound of the setting that is looked at; none that is left has a lower one
  const char *doing = ""; // after the settings
  double toldBest = 0;    // seconds of the best plan at last; 0: none yet
  Outcome outcome;
};

} // namespace

Outcome searchSettings(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                       const Constraints &constraints, const SearchOptions &options) {
  Cells cells(problem, facts, cluster, constraints);
  return searchSettings(problem, facts, cluster, constraints, options, cells);
}

Outcome searchSettings(const Problem &problem, const ProblemFacts &facts, const Cluster &cluster,
                       const Constraints &constraints, const SearchOptions &options, Cells &cells) {
  return OuterSearch(problem, facts, cluster, constraints, options, cells).run();
}

} // namespace cleave::planner
