#include "compiler/planner/facts/fusion.h"
#include "compiler/cluster/device_presets.h"
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace cleave::planner {
namespace {

using dist::Form;

// Per node: copies what stands in memory to where it is to stand, or pools it, which is the library's. Two halves that
// elementwise operations read are not copied but selected from where they are read (codegen/kernels/select_halves.cpp).
std::vector<bool> findCopies(const Problem &problem) {
  std::vector<bool> copies(problem.nodes.size(), false), inMemory(problem.tensors.size(), false),
      isRead(problem.tensors.size(), false);
  for (size_t i = problem.nodes.size(); i-- > 0;) { // readers stand behind what they read
    const Node &node = problem.nodes[i];
    auto isLeft = [&](int result) { return inMemory[size_t(result)] || !isRead[size_t(result)]; };
    const Form form = node.kind.form;
    const bool isLook = form == Form::Transpose || form == Form::Slice || form == Form::Broadcast;
    const bool readsMemory = !node.cheap || node.reduces() || form == Form::Reshape || form == Form::Pool ||
                             (isLook && isLeft(node.results[0]));
    for (int tensor : node.operands) {
      isRead[size_t(tensor)] = true;
      if (readsMemory) inMemory[size_t(tensor)] = true;
    }
    if (form == Form::Pool) copies[i] = true;
    if (form != Form::Concat) continue;
    auto dims = [&](size_t operand) { return problem.tensors[size_t(node.operands[operand])].dims; };
    copies[i] = node.operands.size() != 2 || dims(0) != dims(1) || isLeft(node.results[0]);
  }
  return copies;
}

// Operations that read of an operand only what they give.
bool readsPart(const Node &node) { return node.kind.form == Form::Slice || node.kind.form == Form::Gather; }

// Cheap operations that become one kernel.
class Clusters {
public:
  Clusters(const Graph &graph, double longestRow)
      : copies(findCopies(graph.problem)), graph(graph), problem(graph.problem), parent(problem.nodes.size()),
        breaks(problem.nodes.size()), isWritten(problem.tensors.size()) {
    std::iota(parent.begin(), parent.end(), 0);
    join();
    for (size_t i = parent.size(); i-- > 0;) parent[i] = parent[size_t(parent[i])]; // roots stand behind the others
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const Node &node = problem.nodes[i];
      double row = 1;
      for (size_t f = 0; f < node.rule.factors.size(); ++f)
        if (node.rule.factors[f].kind == dist::Factor::Reduced && int64_t(f) != graph.batchFactors[i])
          row *= double(node.rule.factors[f].size);
      if (node.cheap && !readsPart(node) && longestRow > 0 && row > longestRow) breaks[size_t(root(int(i)))] = true;
    }
    for (size_t i = 0; i < problem.nodes.size(); ++i)
      for (int tensor : problem.nodes[i].operands)
        if (const int source = stored(tensor);
            source >= 0 && !isInside(int(i), source) && (!problem.nodes[i].cheap || !problem.nodes[i].kind.isView()))
          isWritten[size_t(source)] = true;
  }
  int root(int node) const { return parent[size_t(node)]; }
  bool isFused(int node) const { return !breaks[size_t(root(node))]; }
  // The tensor that stands in memory for one that views make, and -1 for values computed from indices.
  int stored(int tensor) const {
    for (const Node *node = graph.producerOf(tensor); node && node->kind.isView(); node = graph.producerOf(tensor)) {
      if (node->operands.empty()) return -1;
      tensor = node->operands[0];
    }
    return tensor;
  }
  // Does the node read the tensor inside the kernel that both belong to?
  bool isInside(int node, int tensor) const {
    const int p = graph.producers[size_t(tensor)];
    return p >= 0 && graph.isCheap(node) && graph.isCheap(p) && isFused(node) && root(p) == root(node);
  }
  // Is the tensor read from memory?
  bool isRead(int tensor) const { return isWritten[size_t(tensor)]; }
  const std::vector<bool> copies;

private:
  // Connected ones with the same heavy operations behind them.
  void join() {
    std::vector<int> depth(problem.nodes.size(), 0); // heavy operations on the longest way to the node
    std::vector<bool> isGenerated(problem.tensors.size());
    for (size_t t = 0; t < problem.tensors.size(); ++t)
      isGenerated[t] = problem.tensors[t].kind == TensorKind::Constant;
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const Node &node = problem.nodes[i];
      for (int tensor : node.operands)
        if (const int p = graph.producers[size_t(tensor)]; p >= 0)
          depth[i] = std::max(depth[i], depth[size_t(p)] + !graph.isCheap(p));
      if (!node.cheap) continue;
      for (int tensor : node.results) isGenerated[size_t(tensor)] = allIn(isGenerated, node.operands);
      for (int tensor : node.operands) {
        const int p = graph.producers[size_t(tensor)];
        if (p < 0 || !graph.isCheap(p) || copies[i] || copies[size_t(p)]) continue;
        // A tensor made from nothing (random masks) is made where it is read.
        const bool isMadeHere = isGenerated[size_t(tensor)] && graph.readers[size_t(tensor)].size() == 1;
        if (isMadeHere || depth[size_t(p)] == depth[i]) parent[size_t(find(p))] = find(int(i));
      }
    }
  }
  // The root while clusters still grow; halves the way there.
  int find(int node) {
    while (parent[size_t(node)] != node) node = parent[size_t(node)] = parent[size_t(parent[size_t(node)])];
    return node;
  }

  const Graph &graph;
  const Problem &problem;
  std::vector<int> parent;
  std::vector<bool> breaks, isWritten;
};

// Gradients of parameters in clusters that sum up rows.
void addColumnSums(const Graph &graph, const Clusters &clusters, std::vector<FusedWork> &work) {
  const Problem &problem = graph.problem;
  std::vector<bool> isBefore(problem.nodes.size(), false); // a sum of rows in its cluster
  std::set<int> sumsRows;
  for (size_t i = problem.nodes.size(); i-- > 0;) {
    const Node &node = problem.nodes[i];
    if (!node.cheap || !clusters.isFused(int(i))) continue;
    if (node.reduces()) sumsRows.insert(clusters.root(int(i)));
    if (!node.reduces() && !isBefore[i]) continue;
    for (int tensor : node.operands)
      if (clusters.isInside(int(i), tensor)) isBefore[size_t(graph.producers[size_t(tensor)])] = true;
  }
  std::map<std::pair<int, bool>, std::vector<size_t>> readers; // of trained parameters, by cluster, after and before it
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    if (!node.cheap || node.kind.isView() || !sumsRows.contains(clusters.root(int(i)))) continue;
    auto isTrained = [&](int tensor) {
      const int source = clusters.stored(tensor);
      return source >= 0 && problem.tensors[size_t(source)].kind == TensorKind::Parameter &&
             problem.tensors[size_t(source)].trainable;
    };
    if (std::ranges::any_of(node.operands, isTrained)) readers[{clusters.root(int(i)), isBefore[i]}].push_back(i);
  }
  for (const auto &[cluster, nodes] : readers)
    for (size_t i : nodes) work[i].columnSums = 1 / double(nodes.size());
}

// Keeps the tensor or what it is made of.
void keep(const Graph &graph, const Clusters &clusters, int tensor, std::vector<bool> &seen, Fusion &fusion) {
  tensor = clusters.stored(tensor);
  if (tensor < 0 || seen[size_t(tensor)]) return;
  seen[size_t(tensor)] = true;
  const Node *producer = graph.producerOf(tensor);
  fusion.madeAgain[size_t(tensor)] = producer && producer->cheap && !producer->reduces() &&
                                     clusters.isFused(graph.producers[size_t(tensor)]) && !clusters.isRead(tensor) &&
                                     graph.problem.tensors[size_t(tensor)].elementBytes > 1;
  if (!fusion.madeAgain[size_t(tensor)])
    fusion.kept[size_t(tensor)] = producer;
  else
    for (int operand : producer->operands) keep(graph, clusters, operand, seen, fusion);
}

void findKept(const Graph &graph, const Clusters &clusters, Fusion &fusion) {
  const Problem &problem = graph.problem;
  std::vector<bool> seen(problem.tensors.size());
  for (size_t t = 0; t < problem.tensors.size(); ++t)
    if (problem.tensors[t].saved) keep(graph, clusters, int(t), seen, fusion);
  // A constant with more bytes than are stored in a plan, or with a part for each sample, is one value repeated.
  for (size_t t = 0; t < problem.tensors.size(); ++t) {
    if (problem.tensors[t].kind != TensorKind::Constant) continue;
    fusion.kept[t] = problem.tensors[t].bytes() <= constants::storedConstantBytes &&
                     std::ranges::none_of(graph.readers[t], [&](const auto &reader) {
                       const auto [node, operand] = reader;
                       const int64_t samples = graph.batchFactors[size_t(node)];
                       return samples >= 0 && indexes(problem.nodes[size_t(node)].rule.operands[operand], samples);
                     });
  }
  // The source of a wider copy is marked as saved.
  for (const Node &node : problem.nodes) {
    if (node.kind.form != Form::Cast || fusion.kept[size_t(node.results[0])]) continue;
    const Tensor &from = problem.tensors[size_t(node.operands[0])], &to = problem.tensors[size_t(node.results[0])];
    if (from.saved && from.elementBytes < to.elementBytes) fusion.madeAgain[size_t(node.results[0])] = true;
  }
}

void findWork(const Graph &graph, const Clusters &clusters, std::vector<FusedWork> &work) {
  const Problem &problem = graph.problem;
  std::map<int, double> traffic; // bytes of a cluster
  std::vector<double> own(problem.nodes.size(), 0);
  const double scale = double(problem.batch) / double(problem.samples);
  auto bytes = [&](int tensor) {
    return problem.tensors[size_t(tensor)].bytes() * (graph.batchDims[size_t(tensor)] >= 0 ? scale : 1);
  };
  std::set<std::pair<int, int>> read; // cluster and tensor: a fused kernel reads a tensor once
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    FusedWork &mine = work[i];
    mine.reads.assign(node.operands.size(), 0);
    mine.sources = node.operands;
    mine.writes.assign(node.results.size(), 0);
    if (!node.cheap) continue;
    mine.isFused = clusters.isFused(int(i));
    mine.cluster = clusters.root(int(i));
    if (node.kind.isView()) continue;
    double made = 0;
    for (int tensor : node.results) made += bytes(tensor);
    for (size_t o = 0; o < node.operands.size(); ++o) {
      const int source = clusters.stored(node.operands[o]);
      if (source < 0 || problem.tensors[size_t(source)].kind == TensorKind::Constant) continue;
      if (clusters.isInside(int(i), source)) continue;
      double needed = std::min(bytes(source), bytes(node.operands[o]));
      if (readsPart(node))
        needed = std::min(needed, made);
      else if (mine.isFused && !read.insert({mine.cluster, source}).second)
        continue;
      mine.sources[o] = source;
      if (bytes(source) > 0) mine.reads[o] = needed / bytes(source);
      own[i] += needed;
    }
    for (size_t r = 0; r < node.results.size(); ++r) {
      if (mine.isFused && !clusters.isRead(node.results[r])) continue;
      mine.writes[r] = 1;
      own[i] += bytes(node.results[r]);
    }
    traffic[mine.cluster] += own[i];
  }
  for (size_t i = 0; i < problem.nodes.size(); ++i)
    if (const Node &node = problem.nodes[i]; own[i] > 0)
      work[i].kernels = clusters.copies[i] ? double(node.operands.size())
                        : work[i].isFused  ? own[i] / traffic[work[i].cluster]
                                           : 1;
  addColumnSums(graph, clusters, work);
}

} // namespace

Fusion findFusion(const Graph &graph, const Device &device) {
  const Clusters clusters(graph, device.fusedRow);
  const size_t nodes = graph.problem.nodes.size(), tensors = graph.problem.tensors.size();
  Fusion fusion{std::vector<FusedWork>(nodes), std::vector<bool>(tensors), std::vector<bool>(tensors)};
  findWork(graph, clusters, fusion.work);
  findKept(graph, clusters, fusion);
  return fusion;
}

std::vector<bool> findAttentionCore(const Graph &graph, const SequenceFactors &sequence) {
  const Problem &problem = graph.problem;
  std::vector<bool> core(problem.nodes.size(), false), reached(problem.tensors.size(), false);
  for (const AttentionNodes &attention : sequence.attentions) {
    core[size_t(attention.score)] = true;
    for (int tensor : problem.nodes[size_t(attention.score)].results) reached[size_t(tensor)] = true;
  }
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    if (!node.cheap || !sequence.inAttention[i]) continue;
    const bool follows = anyIn(reached, node.operands);
    core[i] = follows || !anyIn(graph.needsGradient, node.results); // masks belong to what reads them
    for (int tensor : node.results) reached[size_t(tensor)] = reached[size_t(tensor)] || follows;
  }
  return core;
}

} // namespace cleave::planner
