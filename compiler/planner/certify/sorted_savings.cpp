#include "compiler/planner/certify/sorted_savings.h"
#include <algorithm>

namespace cleave::planner {

SortedSavings::SortedSavings(std::vector<Saving> given) : savings(std::move(given)), before(1) {
  std::ranges::sort(savings, {}, &Saving::price);
  for (const Saving &one : savings)
    before.push_back({before.back().price + one.price * one.bytes, before.back().bytes + one.bytes});
}

SortedSavings::Spent SortedSavings::spend(double bytes) const {
  if (bytes <= 0 || savings.empty()) return {0, std::max(0.0, bytes)};
  // The last of which something is saved.
  const auto next = std::ranges::lower_bound(before, bytes, {}, &Saving::bytes);
  const size_t last = std::min(size_t(next - before.begin()), savings.size()) - 1;
  const double ofLast = std::min(savings[last].bytes, bytes - before[last].bytes);
  return {before[last].price + ofLast * savings[last].price, std::max(0.0, bytes - before.back().bytes)};
}

} // namespace cleave::planner
