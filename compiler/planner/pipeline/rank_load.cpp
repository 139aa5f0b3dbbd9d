#include "compiler/planner/pipeline/rank_load.h"
#include "compiler/planner/infinity.h"
#include "compiler/tuning.h"
#include <algorithm>
#include <cmath>
#include <map>

namespace cleave::planner {
namespace {

// The least number from 1 to `most` that fits, where all larger ones do too; `most` where none does. From a guess in
// strides that double, then halve.
template <class Fits> int fewestThatFit(int guess, int most, Fits fits) {
  int low = 0, high = most;
  const bool isEnough = fits(guess);
  (isEnough ? high : low) = guess;
  for (int stride = 1; high - low > 1; stride *= 2) {
    const int next = isEnough ? high - stride : low + stride;
    if (next <= low || next >= high) break;
    const bool isNext = fits(next);
    (isNext ? high : low) = next;
    if (isNext != isEnough) break;
  }
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (fits(middle) ? high : low) = middle;
  }
  return high;
}

} // namespace

void RankLoad::add(int first, int end, int stage) {
  const std::vector<Unit> &units = problem->model->layout->units;
  const double live = problem->live(stage);
  for (int unit = first, next; unit < end; unit = next) {
    const int kind = units[size_t(unit)].kind;
    for (next = unit + 1; next < end && units[size_t(next)].kind == kind;) ++next;
    auto found = std::find_if(kinds.begin(), kinds.end(),
                              [&](const Count &count) { return count.kind == kind && count.live == live; });
    if (found == kinds.end()) found = kinds.insert(kinds.end(), {kind, 0, live, {}});
    found->units += next - unit;
    for (int one = unit; problem->isGiven() && one < next; ++one)
      if (auto mode = problem->given(stage, one)) ++found->modes[size_t(*mode)];
    state.add(problem->state->kinds[size_t(kind)], double(next - unit));
  }
  for (size_t s = 0; s < problem->state->shared.size(); ++s) {
    const std::vector<int> &readers = problem->model->layout->shared[s].units; // ascending
    auto reader = std::lower_bound(readers.begin(), readers.end(), first);
    const bool reads = reader != readers.end() && *reader < end;
    if (!reads || std::find(sharedSeen.begin(), sharedSeen.end(), s) != sharedSeen.end()) continue;
    sharedSeen.push_back(s);
    state.add(problem->state->shared[s]);
  }
}

bool RankLoad::fit(double &seconds) {
  if (problem->isGiven()) {
    seconds = total().seconds();
    return memory() <= problem->memoryLimit;
  }
  std::vector<Recompute> ways = problem->recompute ? std::vector<Recompute>{*problem->recompute} : problem->allowed;
  best = infinity;
  for (Recompute way : ways) tryFrom(ways.front(), way);
  for (size_t i = 1; i + 1 < ways.size(); ++i) tryFrom(ways[i], ways.back());
  seconds = best;
  if (best == infinity) { // say what the leanest takes
    setAll(ways.back());
    seconds = total().seconds();
    return false;
  }
  for (size_t i = 0; i < kinds.size(); ++i) kinds[i].modes = bestModes[i];
  return true;
}

Cost RankLoad::total() const {
  Cost sum = state;
  for (const Count &count : kinds)
    for (size_t mode = 0; mode < count.modes.size(); ++mode) {
      if (count.modes[mode] == 0) continue;
      sum.add(problem->activity->of(count.kind, Recompute(mode)), double(count.modes[mode]));
    }
  return sum;
}

double RankLoad::memory() const {
  double kept = 0;
  for (const Count &count : kinds)
    for (size_t mode = 0; mode < count.modes.size(); ++mode)
      kept +=
          count.live * double(count.modes[mode]) * problem->kept(problem->activity->of(count.kind, Recompute(mode)));
  return deviceMemory(problem->model->setting, total(), kept, buffers).total();
}

void RankLoad::assign(const std::vector<std::pair<int, int>> &unitsAndStages, std::vector<Recompute> &recompute) const {
  for (const Count &count : kinds) {
    Modes left = count.modes;
    for (auto [unit, stage] : unitsAndStages) {
      if (problem->model->layout->units[size_t(unit)].kind != count.kind || problem->live(stage) != count.live)
        continue;
      size_t mode = left.size() - 1;
      while (mode > 0 && left[mode] == 0) --mode;
      --left[mode];
      recompute[size_t(unit)] = Recompute(mode);
    }
  }
}

void RankLoad::setAll(Recompute how) {
  for (Count &count : kinds) {
    count.modes = {};
    count.modes[size_t(how)] = count.units;
  }
}

void RankLoad::tryFrom(Recompute less, Recompute more) {
  setAll(less);
  auto accept = [&] {
    double seconds = total().seconds();
    if (seconds >= best) return;
    best = seconds;
    bestModes.clear();
    for (const Count &count : kinds) bestModes.push_back(count.modes);
  };
  double over = memory() - problem->memoryLimit;
  if (over <= 0) return accept();
  if (less == more) return;
  auto saved = [&](const Count &count) {
    const Cost &a = problem->activity->of(count.kind, less), &b = problem->activity->of(count.kind, more);
    return (a.kept - b.kept) * count.live + a.keptOfLast - b.keptOfLast +
           2 * (a.keptOnHost - b.keptOnHost) / tuning::hostBuckets;
  };
  struct Step {
    std::vector<size_t> counts; // units that are computed again together; of one count each by itself
    double saved = 0, seconds = 0;
    bool operator<(const Step &other) const {
      return std::pair(seconds / saved, counts[0]) < std::pair(other.seconds / other.saved, other.counts[0]);
    }
  };
  std::vector<Step> order; // most bytes saved for the time first
  std::map<int, size_t> ofGroup;
  for (size_t i = 0; i < kinds.size(); ++i) {
    const int group = more == Recompute::Full ? problem->model->layout->togetherAgain[size_t(kinds[i].kind)] : -1;
    const auto [found, isNew] = group < 0 ? std::pair(ofGroup.end(), true) : ofGroup.try_emplace(group, order.size());
    if (isNew) order.emplace_back();
    Step &step = isNew ? order.back() : order[found->second];
    const double units = group < 0 ? 1 : kinds[i].units;
    step.counts.push_back(i);
    step.saved += units * saved(kinds[i]);
    step.seconds += units * (problem->activity->of(kinds[i].kind, more).seconds() -
                             problem->activity->of(kinds[i].kind, less).seconds());
  }
  std::erase_if(order, [](const Step &step) { return step.saved <= 0; });
  std::sort(order.begin(), order.end());
  for (const Step &step : order) {
    over = memory() - problem->memoryLimit;
    if (over <= 0) break;
    auto set = [&](size_t i, int units) {
      kinds[i].modes[size_t(less)] = kinds[i].units - units;
      kinds[i].modes[size_t(more)] = units;
    };
    const size_t first = step.counts[0];
    if (more == Recompute::Full && problem->model->layout->togetherAgain[size_t(kinds[first].kind)] >= 0) {
      for (size_t i : step.counts) set(i, kinds[i].units);
      continue;
    }
    // The first recomputed unit brings its transient bytes with it.
    double needed = over + problem->activity->of(kinds[first].kind, more).beside;
    int count = std::min(kinds[first].units, int(std::min(1e9, std::ceil(needed / step.saved))));
    // Buffers of what leaves for the host have room for the largest, however few units need them; and what stands
    // beside may have been there already.
    set(first, fewestThatFit(count, kinds[first].units, [&](int units) {
          set(first, units);
          return memory() <= problem->memoryLimit;
        }));
  }
  if (memory() <= problem->memoryLimit) accept();
}

} // namespace cleave::planner
