#include "compiler/planner/facts/whole_recomputation.h"
#include <algorithm>
#include <functional>

namespace cleave::planner {

// Given numbers save most when the ways that save most are where most slots are (the rearrangement inequality).
std::vector<AgainChoice> wholeRecomputation(std::vector<AgainWay> ways, std::vector<double> slots) {
  std::ranges::sort(ways, std::greater(), &AgainWay::saved);
  std::ranges::sort(slots, std::greater());
  std::vector<double> before = {0}; // slots of all units before each
  for (double one : slots) before.push_back(before.back() + one);
  std::vector<AgainChoice> choices;
  std::function<void(size_t, size_t, AgainChoice)> choose = [&](size_t way, size_t first, AgainChoice choice) {
    if (way == ways.size()) return choices.push_back(choice);
    for (size_t end = first; end < before.size(); ++end) {
      const double units = double(end - first);
      choose(way + 1, end,
             {choice.seconds + units * ways[way].seconds,
              choice.saved + (before[end] - before[first]) * ways[way].saved - units * ways[way].savedOfLast});
    }
  };
  choose(0, 0, {});
  return choices;
}

} // namespace cleave::planner
