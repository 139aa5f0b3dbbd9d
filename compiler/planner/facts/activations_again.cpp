#include "compiler/planner/facts/activations_again.h"
#include <algorithm>

namespace cleave::planner {
namespace {

using dist::Form;

// Where the backward pass gets a tensor from.
enum class Origin : uint8_t {
  Lost,   // from nowhere: it would have to be kept
  AtHand, // from memory, or a kernel makes it from what is there
  Inside, // neither kept nor needed by itself, but made of what is at hand
  Again   // computed again for products
};

class ActivationSearch {
public:
  ActivationSearch(const Graph &graph, const std::vector<bool> &kept, const std::vector<bool> &madeAgain,
                   const std::vector<int> &segmentOf)
      : graph(graph), problem(graph.problem), kept(kept), madeAgain(madeAgain), segmentOf(segmentOf),
        origins(problem.tensors.size(), Origin::AtHand), isSource(problem.tensors.size(), false),
        found(problem.nodes.size()) {}

  std::vector<ActivationsAgain> run() {
    // A kernel of the backward pass that makes something of it again would keep it.
    for (size_t t = 0; t < problem.tensors.size(); ++t)
      if (const Node *producer = madeAgain[t] ? graph.producerOf(int(t)) : nullptr)
        for (int operand : producer->operands) isSource[size_t(stored(operand))] = true;
    for (size_t i = 0; i < problem.nodes.size(); ++i)
      for (int result : problem.nodes[i].results) origins[size_t(result)] = originOf(int(i), result);
    for (size_t i = 0; i < problem.nodes.size(); ++i)
      if (!problem.nodes[i].kind.isView() && isAgain(int(i))) addKernel(int(i));
    for (size_t i = 0; i < problem.nodes.size(); ++i) // views of what is computed again
      if (problem.nodes[i].kind.isView() && isAgain(int(i))) found[i].isAgain = true;
    return std::move(found);
  }

private:
  Origin &of(int tensor) { return origins[size_t(tensor)]; }
  bool isAgain(int node) {
    return std::ranges::any_of(problem.nodes[size_t(node)].results,
                               [&](int result) { return of(result) == Origin::Again; });
  }

  // The tensor that views lie in.
  int stored(int tensor) const {
    for (const Node *node = graph.producerOf(tensor); node && node->kind.isView() && !node->operands.empty();
         node = graph.producerOf(tensor))
      tensor = node->operands[0];
    return tensor;
  }

  Origin originOf(int index, int result) {
    const Node &node = problem.nodes[size_t(index)];
    if (node.kind.isView()) return node.operands.empty() ? Origin::AtHand : of(node.operands[0]);
    const bool isPointwise =
        node.kind.form == Form::Elementwise || node.kind.form == Form::Accumulation || node.kind.form == Form::Cast;
    const bool canBeMade =
        node.cheap && isPointwise && !node.reduces() && node.results.size() == 1 && segmentOf[size_t(index)] >= 0 &&
        !leavesSegment(result, segmentOf[size_t(index)]) &&
        std::ranges::none_of(node.operands, [&](int operand) { return of(operand) == Origin::Lost; });
    if (kept[size_t(result)]) return canBeMade && isDropped(result) ? Origin::Again : Origin::AtHand;
    if (madeAgain[size_t(result)]) return Origin::AtHand;
    return canBeMade ? Origin::Inside : Origin::Lost;
  }

  // Is it kept for products alone? Masks of a byte are not worth a kernel, and a chunk of the loss is not kept.
  bool isDropped(int tensor) const {
    const Tensor &one = problem.tensors[size_t(tensor)];
    return one.elementBytes > 1 && !one.chunked && !isSource[size_t(tensor)] && isReadByProducts(tensor);
  }
  bool isReadByProducts(int tensor) const {
    return std::ranges::any_of(graph.readers[size_t(tensor)], [&](const auto &reader) {
      const Node &node = problem.nodes[size_t(reader.first)];
      return !node.cheap || (node.kind.isView() && isReadByProducts(node.results[0]));
    });
  }
  bool leavesSegment(int tensor, int segment) const {
    return std::ranges::any_of(graph.readers[size_t(tensor)], [&](const auto &reader) {
      const Node &node = problem.nodes[size_t(reader.first)];
      return segmentOf[size_t(reader.first)] != segment ||
             (node.kind.isView() && leavesSegment(node.results[0], segment));
    });
  }

  // The kernel that makes a node's result again.
  void addKernel(int index) {
    found[size_t(index)].isAgain = found[size_t(index)].computes = true;
    std::vector<int> open = problem.nodes[size_t(index)].operands, &sources = found[size_t(index)].sources;
    std::vector<bool> seen(problem.tensors.size(), false);
    while (!open.empty()) {
      const int tensor = open.back(), producer = graph.producers[size_t(tensor)];
      open.pop_back();
      if (seen[size_t(tensor)]) continue;
      seen[size_t(tensor)] = true;
      if (producer < 0) continue;
      const Node &node = problem.nodes[size_t(producer)];
      if (!node.kind.isView() && of(tensor) != Origin::Inside && !madeAgain[size_t(tensor)]) {
        sources.push_back(tensor); // kept, or computed again before
        continue;
      }
      ActivationsAgain &inside = found[size_t(producer)];
      inside.isAgain |= of(tensor) == Origin::Inside;
      inside.computes |= !node.kind.isView() && segmentOf[size_t(producer)] >= 0;
      open.insert(open.end(), node.operands.begin(), node.operands.end());
    }
  }

  const Graph &graph;
  const Problem &problem;
  const std::vector<bool> &kept, &madeAgain;
  const std::vector<int> &segmentOf;
  std::vector<Origin> origins;
  std::vector<bool> isSource; // per tensor
  std::vector<ActivationsAgain> found;
};

} // namespace

std::vector<ActivationsAgain> findActivationsAgain(const Graph &graph, const std::vector<bool> &kept,
                                                   const std::vector<bool> &madeAgain,
                                                   const std::vector<int> &segmentOf) {
  return ActivationSearch(graph, kept, madeAgain, segmentOf).run();
}

} // namespace cleave::planner
