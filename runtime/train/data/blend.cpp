#include "runtime/train/data/blend.h"
#include <algorithm>
#include <cmath>
#include <numeric>

namespace cleave::runtime {

Blend::Blend(const std::vector<double> &of) : given(of.size()) {
  int64_t divisor = 0;
  for (double weight : of) {
    weights.push_back(std::max<int64_t>(1, std::llround(weight * 1e9)));
    divisor = std::gcd(divisor, weights.back());
  }
  for (int64_t &weight : weights) total += weight /= divisor;
}

// Of the sources that would not exceed their share rounded up, the one that falls below it rounded down the soonest.
Blend::Turn Blend::next() {
  using Wide = __int128;
  ++turns;
  size_t best = weights.size();
  for (size_t i = 0; i < weights.size(); ++i) {
    if (Wide(given[i]) * total >= Wide(weights[i]) * turns) continue;
    if (best == weights.size() || Wide(given[i] + 1) * weights[best] < Wide(given[best] + 1) * weights[i]) best = i;
  }
  return {best, given[best]++};
}

// After `total` turns every source has had its weight of them, and the turns begin anew.
void Blend::seek(int64_t turn) {
  for (size_t i = 0; i < weights.size(); ++i) given[i] = turn / total * weights[i];
  for (turns = turn / total * total; turns < turn;) next();
}

} // namespace cleave::runtime
