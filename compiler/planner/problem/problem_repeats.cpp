// Repeated blocks: every node gets a hash of its own form (operation, rule, kinds and shapes of its operands and
// results, which of them are made from weights alone, never names); a run of blocks is a stretch where the hash recurs
// with one period. The longest stretch is taken first, then the nodes before and after it are searched the same way.
//
// Tying the nodes of such blocks together restricts the search but is never wrong: every node keeps its own edges.
#include "compiler/planner/problem/problem.h"
#include <algorithm>
#include <fmt/format.h>
#include <functional>

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

// The run in [begin, end) that saves most nodes, period * (count - 1); the shortest period, then the first, where
// several do. Nodes like the one a period later form stretches; one that saves more than is known is longer than that,
// so that its last node of so many is looked at first, and most others never.
Repeat longestRun(const std::vector<uint64_t> &forms, int begin, int end) {
  Repeat best;
  for (int period = 1, saved = 0; begin + period + saved < end; ++period) {
    auto isSame = [&](int i) { return forms[size_t(i)] == forms[size_t(i + period)]; };
    for (int first = begin; first + saved + period < end;) {
      int at = first + saved;
      while (at >= first && isSame(at)) --at;
      if (at >= first) {
        first = at + 1;
        continue;
      }
      int stop = first + saved + 1;
      while (stop + period < end && isSame(stop)) ++stop;
      if (const int repeats = (stop - first) / period; repeats * period > saved) {
        saved = repeats * period;
        best = {first, period, repeats + 1};
      }
      first = stop + 1;
    }
  }
  return best;
}

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
    Repeat run = longestRun(forms, begin, end);
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
