#include "compiler/planner/facts/recomputation.h"
#include <algorithm>

namespace cleave::planner {
namespace {

// Where a graph that is not made of repeated blocks is cut, between units: segments of at least `target` kept bytes
// each, for targets that double; those with the least sum of what crosses the cuts and the largest segment.
std::vector<int> cutFreely(const Problem &problem, const std::vector<Unit> &units) {
  int count = int(problem.nodes.size());
  std::vector<double> crossing = problem.liveBytes(), kept(size_t(count) + 1, 0);
  for (int i = 0; i < count; ++i) {
    kept[size_t(i) + 1] = kept[size_t(i)];
    for (int tensor : problem.nodes[size_t(i)].results)
      if (problem.tensors[size_t(tensor)].saved) kept[size_t(i) + 1] += problem.tensors[size_t(tensor)].bytes();
  }
  double total = kept.back(), least = total;
  auto between = [&](int from, int to) { return kept[size_t(to)] - kept[size_t(from)]; };
  std::vector<int> best;
  for (double target = std::max(total / 4096, 1.0); target < total; target *= 2) {
    std::vector<int> cuts;
    int start = 0;
    double stored = 0, largest = 0;
    while (between(start, count) > target) {
      // The narrowest place at which the segment holds between one and two targets, the later of equals; or the first
      // behind that.
      int cut = -1;
      for (const Unit &unit : units) {
        const double held = unit.first > start ? between(start, unit.first) : 0;
        if (unit.first <= start || held < target || (held > 2 * target && cut >= 0)) continue;
        if (cut < 0 || crossing[size_t(unit.first)] <= crossing[size_t(cut)]) cut = unit.first;
        if (held > 2 * target) break;
      }
      if (cut < 0) break;
      largest = std::max(largest, between(start, cut));
      stored += crossing[size_t(cut)];
      cuts.push_back(cut);
      start = cut;
    }
    largest = std::max(largest, between(start, count));
    if (stored + largest < least) least = stored + largest, best = cuts;
  }
  return best;
}

// From the scores to the weights, and the masks that nothing else reads.
std::vector<bool> attentionNodes(const Problem &problem, const SequenceFactors &sequence) {
  std::vector<bool> found(problem.nodes.size(), false), needsGradient = problem.needsGradient();
  std::vector<std::vector<int>> readers(problem.tensors.size());
  for (size_t i = 0; i < problem.nodes.size(); ++i)
    for (int tensor : problem.nodes[i].operands) readers[size_t(tensor)].push_back(int(i));
  for (const AttentionNodes &attention : sequence.attentions)
    for (int node : attention.weights) found[size_t(node)] = true;
  for (size_t i = problem.nodes.size(); i-- > 0;) {
    const Node &node = problem.nodes[i];
    if (found[i] || !node.cheap || node.results.empty()) continue;
    found[i] = std::all_of(node.results.begin(), node.results.end(), [&](int tensor) {
      const std::vector<int> &of = readers[size_t(tensor)];
      return !needsGradient[size_t(tensor)] && !of.empty() &&
             std::all_of(of.begin(), of.end(), [&](int reader) { return found[size_t(reader)]; });
    });
  }
  return found;
}

} // namespace

namespace {

// What backward operations read of a segment and was not kept for another one, and what that is made from there.
std::vector<bool> neededAgain(const Problem &problem, const std::vector<int> &segmentOf) {
  std::vector<bool> needed(problem.tensors.size(), false), leaves(problem.tensors.size(), false);
  const std::vector<int> producers = problem.producers();
  auto segmentOfTensor = [&](int tensor) {
    const int producer = producers[size_t(tensor)];
    return producer < 0 ? -1 : segmentOf[size_t(producer)];
  };
  for (size_t i = 0; i < problem.nodes.size(); ++i)
    for (int tensor : problem.nodes[i].operands)
      if (segmentOfTensor(tensor) != segmentOf[i]) leaves[size_t(tensor)] = true;
  for (size_t i = problem.nodes.size(); i-- > 0;) {
    if (segmentOf[i] < 0) continue;
    bool again = false;
    for (int tensor : problem.nodes[i].results) {
      needed[size_t(tensor)] =
          !leaves[size_t(tensor)] && (needed[size_t(tensor)] || problem.tensors[size_t(tensor)].saved);
      again |= needed[size_t(tensor)];
    }
    if (!again) continue;
    for (int tensor : problem.nodes[i].operands)
      if (segmentOfTensor(tensor) == segmentOf[i]) needed[size_t(tensor)] = true;
  }
  return needed;
}

} // namespace

bool RecomputeSegments::any() const {
  return std::any_of(segmentOf.begin(), segmentOf.end(), [](int segment) { return segment >= 0; });
}

RecomputeSegments findSegments(const Problem &problem, const std::vector<Unit> &units,
                               const std::vector<int> &unitOfNode, const SequenceFactors &sequence, bool all) {
  std::vector<int> segmentOf(problem.nodes.size(), -1);
  // Three projections of one input repeat, too, and are no blocks to compute again: those make most of what is kept.
  double kept = 0, ofBlocks = 0;
  for (size_t i = 0; i < problem.nodes.size(); ++i)
    for (int tensor : problem.nodes[i].results) {
      if (!problem.tensors[size_t(tensor)].saved) continue;
      kept += problem.tensors[size_t(tensor)].bytes();
      if (units[size_t(unitOfNode[i])].isBlock) ofBlocks += problem.tensors[size_t(tensor)].bytes();
    }
  if (ofBlocks > kept / 2) {
    for (size_t i = 0; i < problem.nodes.size(); ++i)
      if (units[size_t(unitOfNode[i])].isBlock) segmentOf[i] = unitOfNode[i];
  } else if (const std::vector<int> cuts = cutFreely(problem, units); !cuts.empty()) {
    // The last segment's gradients come right after it.
    for (size_t i = 0; i < size_t(cuts.back()); ++i)
      segmentOf[i] = int(std::upper_bound(cuts.begin(), cuts.end(), int(i)) - cuts.begin());
  }
  std::vector<bool> needed = all ? std::vector<bool>(problem.tensors.size(), true) : neededAgain(problem, segmentOf);
  return {std::move(segmentOf), attentionNodes(problem, sequence), std::move(needed)};
}

} // namespace cleave::planner
