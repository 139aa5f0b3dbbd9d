#include "compiler/planner/facts/recomputation.h"
#include <algorithm>

namespace cleave::planner {
namespace {

// Bytes of what the node makes and the backward pass reads.
double savedBytes(const Problem &problem, const Node &node) {
  double bytes = 0;
  for (int tensor : node.results)
    if (problem.tensors[size_t(tensor)].saved) bytes += problem.tensors[size_t(tensor)].bytes();
  return bytes;
}

// Where a graph that is not made of repeated blocks is cut, between units: segments of at least `target` kept bytes
// each, for targets that double; those with the least sum of what crosses the cuts and the largest segment.
std::vector<int> cutFreely(const Problem &problem, const std::vector<Unit> &units) {
  const int count = int(problem.nodes.size());
  std::vector<double> crossing = problem.liveBytes(), kept = {0};
  for (const Node &node : problem.nodes) kept.push_back(kept.back() + savedBytes(problem, node));
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
std::vector<bool> attentionNodes(const Graph &graph, const SequenceFactors &sequence) {
  const Problem &problem = graph.problem;
  std::vector<bool> found(problem.nodes.size(), false);
  for (const AttentionNodes &attention : sequence.attentions)
    for (int node : attention.weights) found[size_t(node)] = true;
  for (size_t i = problem.nodes.size(); i-- > 0;) {
    const Node &node = problem.nodes[i];
    if (found[i] || !node.cheap || node.results.empty()) continue;
    found[i] = std::ranges::all_of(node.results, [&](int tensor) {
      const auto &readers = graph.readers[size_t(tensor)];
      return !graph.needsGradient[size_t(tensor)] && !readers.empty() &&
             std::ranges::all_of(readers, [&](const auto &reader) { return found[size_t(reader.first)]; });
    });
  }
  return found;
}

// The tensors of a segment that backward operations read and that were not kept for another one, and those that these
// are made from there.
std::vector<bool> neededAgain(const Graph &graph, const std::vector<int> &segmentOf) {
  const Problem &problem = graph.problem;
  std::vector<bool> needed(problem.tensors.size(), false);
  auto leaves = [&](int tensor, int segment) {
    return std::ranges::any_of(graph.readers[size_t(tensor)],
                               [&](const auto &reader) { return segmentOf[size_t(reader.first)] != segment; });
  };
  for (size_t i = problem.nodes.size(); i-- > 0;) {
    const Node &node = problem.nodes[i];
    if (segmentOf[i] < 0) continue;
    for (int tensor : node.results)
      needed[size_t(tensor)] =
          (needed[size_t(tensor)] || problem.tensors[size_t(tensor)].saved) && !leaves(tensor, segmentOf[i]);
    if (!anyIn(needed, node.results)) continue;
    for (int tensor : node.operands)
      if (const int p = graph.producers[size_t(tensor)]; p >= 0 && segmentOf[size_t(p)] == segmentOf[i])
        needed[size_t(tensor)] = true;
  }
  return needed;
}

} // namespace

bool RecomputeSegments::any() const {
  return std::ranges::any_of(segmentOf, [](int segment) { return segment >= 0; });
}

bool RecomputeSegments::hasActivations() const {
  return std::ranges::any_of(activations, [](const ActivationsAgain &one) { return one.isAgain; });
}

RecomputeSegments findSegments(const Graph &graph, const std::vector<Unit> &units, const std::vector<int> &unitOfNode,
                               const SequenceFactors &sequence, bool all) {
  const Problem &problem = graph.problem;
  std::vector<int> segmentOf(problem.nodes.size(), -1);
  // Three projections of one input repeat, too, and are no blocks to compute again: those make most of what is kept.
  double kept = 0, ofBlocks = 0;
  auto isInBlock = [&](size_t node) { return units[size_t(unitOfNode[node])].isBlock; };
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const double bytes = savedBytes(problem, problem.nodes[i]);
    kept += bytes;
    if (isInBlock(i)) ofBlocks += bytes;
  }
  if (ofBlocks > kept / 2) {
    for (size_t i = 0; i < problem.nodes.size(); ++i)
      if (isInBlock(i)) segmentOf[i] = unitOfNode[i];
  } else if (const std::vector<int> cuts = cutFreely(problem, units); !cuts.empty()) {
    // The last segment's gradients come right after it.
    for (size_t i = 0; i < size_t(cuts.back()); ++i)
      segmentOf[i] = int(std::ranges::upper_bound(cuts, int(i)) - cuts.begin());
  }
  std::vector<bool> needed = all ? std::vector<bool>(problem.tensors.size(), true) : neededAgain(graph, segmentOf);
  return {std::move(segmentOf), attentionNodes(graph, sequence), std::move(needed)};
}

} // namespace cleave::planner
