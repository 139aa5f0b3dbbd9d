// Repeated blocks: every node gets a hash of its own form (operation, rule, kinds and shapes of its operands and
// results, which of them are made from weights alone, never names); a run of blocks is a stretch where the hash recurs
// with one period. The longest stretch is taken first, then the nodes before and after it are searched the same way.
//
// Tying the nodes of such blocks together restricts the search but is never wrong: every node keeps its own edges.
#include "compiler/planner/problem/problem.h"
#include <algorithm>
#include <fmt/format.h>
#include <functional>
#include <unordered_map>
#include <utility>

namespace cleave::planner {
namespace {

uint64_t formOf(const Problem &problem, const Node &node, const std::vector<bool> &isWeight) {
  uint64_t hash = 14695981039346656037ull;
  auto mix = [&](uint64_t value) {
    hash = (hash ^ value) * 1099511628211ull;
    hash ^= hash >> 29;
  };
  auto mixTensor = [&](int index, const dist::TensorFactors &factors) {
    const Tensor &tensor = problem.tensors[size_t(index)];
    mix(tensor.kind == TensorKind::Parameter ? 2 + uint64_t(tensor.trainable) : isWeight[size_t(index)] ? 4 : 1);
    mix(uint64_t(tensor.elementBytes));
    for (size_t dim = 0; dim < tensor.dims.size(); ++dim) {
      mix(uint64_t(tensor.dims[dim]) + 7);
      for (int64_t factor : factors[dim]) mix(uint64_t(factor) + 1000003);
    }
  };
  mix(std::hash<std::string>{}(node.op));
  for (const dist::Factor &factor : node.rule.factors) {
    mix(uint64_t(factor.size));
    mix(uint64_t(factor.kind) * 4 + uint64_t(factor.reduction));
  }
  for (size_t o = 0; o < node.operands.size(); ++o) mixTensor(node.operands[o], node.rule.operands[o]);
  mix(77);
  for (size_t r = 0; r < node.results.size(); ++r) mixTensor(node.results[r], node.rule.results[r]);
  mix(uint64_t(node.flops));
  return hash;
}

// For every window of forms, whatever its length: the next window like it. Where that is at the same distance for a
// stretch of windows, there is a run of that period: of three or more blocks it is found by windows as long as a block
// to twice that, which recur nowhere nearer; of two by windows of most of a block. n log n for n nodes.
class Runs {
public:
  Runs(const std::vector<uint64_t> &forms, int begin, int end)
      : forms(forms), begin(begin), count(end - begin), windows(forms.begin() + begin, forms.begin() + end) {}

  // The one that saves most nodes, period * (count - 1); the shortest period, then the first, where several do.
  Repeat longest() {
    std::vector<uint64_t> half; // of windows half as long
    for (int length = 1; length < count; length *= 2) {
      if (!half.empty()) lookAt(joined(windows, half, length), length + length / 2);
      lookAt(windows, length);
      half = windows;
      windows = joined(windows, windows, length);
    }
    return best;
  }

private:
  // Windows made of one of `first`, `length` forms long, and one of `second` behind it.
  static std::vector<uint64_t> joined(const std::vector<uint64_t> &first, const std::vector<uint64_t> &second,
                                      int length) {
    std::vector<uint64_t> windows;
    for (size_t i = 0; i < first.size() && i + size_t(length) < second.size(); ++i) {
      uint64_t hash = (first[i] ^ 0x9e3779b97f4a7c15ull) * 0xff51afd7ed558ccdull;
      windows.push_back((hash ^ (hash >> 33)) + second[i + size_t(length)] * 0xc4ceb9fe1a85ec53ull);
    }
    return windows;
  }

  void lookAt(const std::vector<uint64_t> &given, int length) {
    const int last = int(given.size());
    std::unordered_map<uint64_t, int> next;
    int period = 0, stop = 0; // of the stretch of windows that ends before `stop`
    for (int i = last; i >= 0; --i) {
      int distance = 0;
      if (i > 0) {
        auto [found, isNew] = next.try_emplace(given[size_t(i) - 1], i - 1);
        if (!isNew) distance = std::exchange(found->second, i - 1) - (i - 1);
      }
      if (distance == period && i > 0) continue;
      if (period > 0) consider(i, stop - i + length - 1, period);
      period = distance;
      stop = i;
    }
  }

  // A stretch of at least `same` forms, each like the one a period later.
  void consider(int first, int same, int period) {
    const auto at = [&](int i) { return forms[size_t(begin + i)]; };
    int end = first + same;
    auto &[knownFirst, knownEnd] = known[period];
    if (knownFirst <= first && first < knownEnd) return;
    while (first > 0 && at(first - 1) == at(first - 1 + period)) --first;
    while (end + period < count && at(end) == at(end + period)) ++end;
    knownFirst = first;
    knownEnd = end;
    const int repeats = (end - first) / period, saves = repeats * period;
    if (saves < saved || saves == 0) return;
    if (saves == saved && std::pair(period, begin + first) >= std::pair(best.period, best.first)) return;
    for (int i = first; i < end; ++i)
      if (at(i) != at(i + period)) return; // two windows had the same hash
    saved = saves;
    best = {begin + first, period, repeats + 1};
  }

  const std::vector<uint64_t> &forms;
  const int begin, count;
  std::vector<uint64_t> windows;
  std::unordered_map<int, std::pair<int, int>> known; // by period: the latest stretch, as long as it is
  Repeat best;
  int saved = 0;
};

// A period may begin anywhere in its block: begin it where the fewest bytes cross from one repetition to the next.
Repeat cutWhereLeastIsLive(Repeat run, const std::vector<uint64_t> &forms, const std::vector<double> &live, int end) {
  int last = run.end(); // how far the pattern really goes on
  while (last < end && forms[size_t(last)] == forms[size_t(last - run.period)]) ++last;
  Repeat best = run;
  double least = live[size_t(run.first + run.period)];
  for (int shift = 1; shift < run.period; ++shift) {
    int count = (last - run.first - shift) / run.period;
    double bytes = live[size_t(run.first + shift + run.period)];
    if (count < 2 || bytes >= 0.99 * least) continue;
    least = bytes;
    best = {run.first + shift, run.period, count};
  }
  return best;
}

} // namespace

std::vector<double> Problem::liveBytes() const {
  std::vector<int> made = producers(), read(tensors.size(), -1);
  for (size_t i = 0; i < nodes.size(); ++i)
    for (int tensor : nodes[i].operands) read[size_t(tensor)] = int(i);
  std::vector<double> change(nodes.size() + 2, 0.0), live(nodes.size() + 1, 0.0);
  for (size_t t = 0; t < tensors.size(); ++t) {
    if (made[t] < 0 || read[t] <= made[t]) continue;
    change[size_t(made[t]) + 1] += tensors[t].bytes();
    change[size_t(read[t]) + 1] -= tensors[t].bytes();
  }
  double sum = 0;
  for (size_t i = 0; i < live.size(); ++i) live[i] = sum += change[i];
  return live;
}

std::vector<Repeat> Problem::findRepeats() const {
  std::vector<uint64_t> forms;
  forms.reserve(nodes.size());
  const std::vector<bool> isWeight = areWeights(true);
  for (const Node &node : nodes) forms.push_back(formOf(*this, node, isWeight));
  std::vector<Repeat> found;
  std::vector<double> live = liveBytes();
  std::function<void(int, int)> search = [&](int begin, int end) {
    Repeat run = Runs(forms, begin, end).longest();
    // A couple of equal neighbours is no block: it must be worth tying.
    if (run.period * (run.count - 1) < 2 || run.period < 2) return;
    run = cutWhereLeastIsLive(run, forms, live, end);
    search(begin, run.first);
    found.push_back(run);
    search(run.end(), end);
  };
  search(0, int(nodes.size()));
  return found;
}

} // namespace cleave::planner
