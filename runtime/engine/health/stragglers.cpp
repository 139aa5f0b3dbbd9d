#include "runtime/engine/health/stragglers.h"
#include <algorithm>
#include <map>

namespace cleave::runtime {

namespace {
constexpr double slowRatio = 1.5;
constexpr double leastExcess = 1e-3; // seconds a step: less is the scheduler's noise
} // namespace

void Stragglers::heard(int rank, int64_t window, double ownSeconds) {
  own[static_cast<size_t>(rank)] = {window, ownSeconds};
}

std::vector<Straggler> Stragglers::found() {
  int64_t first = INT64_MAX, last = 0;
  std::map<int, std::vector<double>> times; // by group
  for (size_t rank = 0; rank < own.size(); ++rank) {
    first = std::min(first, own[rank].window), last = std::max(last, own[rank].window);
    times[groups[rank]].push_back(own[rank].seconds);
  }
  if (own.empty() || first <= judged) return {};
  judged = last;
  for (auto &[group, seconds] : times) std::ranges::sort(seconds);
  std::vector<Straggler> slow;
  for (size_t rank = 0; rank < own.size(); ++rank) {
    const std::vector<double> &group = times[groups[rank]];
    double median = group[(group.size() - 1) / 2], seconds = own[rank].seconds; // of two, the faster one
    if (seconds > slowRatio * median && seconds - median > leastExcess)
      slow.push_back({static_cast<int>(rank), seconds / std::max(median, 1e-9), seconds, median});
  }
  return slow;
}

} // namespace cleave::runtime
