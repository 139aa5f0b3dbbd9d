#include "compiler/planner/facts/fusion.h"
#include "compiler/cluster/device_presets.h"
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

namespace cleave::planner {
namespace {

using dist::Form;

bool isPool(const Node &node) { return node.kind.form == Form::Pool; }

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
    const bool readsMemory =
        !node.cheap || node.reduces() || form == Form::Reshape || isPool(node) || (isLook && isLeft(node.results[0]));
    for (int tensor : node.operands) {
      isRead[size_t(tensor)] = true;
      if (readsMemory) inMemory[size_t(tensor)] = true;
    }
    if (isPool(node)) copies[i] = true;
    if (form != Form::Concat) continue;
    auto dims = [&](size_t operand) { return problem.tensors[size_t(node.operands[operand])].dims; };
    copies[i] = node.operands.size() != 2 || dims(0) != dims(1) || isLeft(node.results[0]);
  }
  return copies;
}

// Operations that read of an operand only what they give.
bool readsPart(const Node &node) { return node.kind.form == Form::Slice || node.kind.form == Form::Gather; }

class Clusters {
public:
  Clusters(const Problem &problem, const std::vector<int64_t> &batchFactors)
      : copies(findCopies(problem)), problem(problem), producers(problem.producers()), parent(problem.nodes.size()),
        breaks(problem.nodes.size()) {
    std::iota(parent.begin(), parent.end(), 0);
    std::vector<int> depth(problem.nodes.size(), 0); // heavy operations on the longest way to the node
    std::vector<bool> isGenerated(problem.nodes.size(), false);
    std::vector<int> readers(problem.tensors.size(), 0);
    for (const Node &node : problem.nodes)
      for (int tensor : node.operands) ++readers[size_t(tensor)];
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const Node &node = problem.nodes[i];
      for (int tensor : node.operands)
        if (int p = producers[size_t(tensor)]; p >= 0)
          depth[i] = std::max(depth[i], depth[size_t(p)] + !problem.nodes[size_t(p)].cheap);
      if (!node.cheap) continue;
      isGenerated[i] = std::ranges::all_of(node.operands, [&](int tensor) {
        int p = producers[size_t(tensor)];
        return p >= 0 ? bool(isGenerated[size_t(p)]) : problem.tensors[size_t(tensor)].kind == TensorKind::Constant;
      });
      for (int tensor : node.operands) {
        int p = producers[size_t(tensor)];
        if (p < 0 || !problem.nodes[size_t(p)].cheap) continue;
        // What is made from nothing (random masks) is made where it is read.
        if (copies[i] || copies[size_t(p)]) continue;
        bool isMadeHere = isGenerated[size_t(p)] && readers[size_t(tensor)] == 1;
        if (isMadeHere || depth[size_t(p)] == depth[i]) parent[size_t(find(p))] = find(int(i));
      }
    }
    for (size_t i = parent.size(); i-- > 0;) parent[i] = parent[size_t(parent[i])]; // roots stand behind the others
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      double row = 1;
      const auto &factors = problem.nodes[i].rule.factors;
      for (size_t f = 0; f < factors.size(); ++f)
        if (factors[f].kind == dist::Factor::Reduced && int64_t(f) != batchFactors[i]) row *= double(factors[f].size);
      if (problem.nodes[i].cheap && !readsPart(problem.nodes[i]) && row > constants::fusedRow)
        breaks[size_t(root(int(i)))] = true;
    }
  }
  int root(int node) const { return parent[size_t(node)]; }
  bool isFused(int node) const { return !breaks[size_t(root(node))]; }
  // The tensor that stands in memory for one that views make, and -1 for values computed from indices.
  int stored(int tensor) const {
    for (int p = producers[size_t(tensor)]; p >= 0 && problem.nodes[size_t(p)].kind.isView();
         p = producers[size_t(tensor)]) {
      if (problem.nodes[size_t(p)].operands.empty()) return -1;
      tensor = problem.nodes[size_t(p)].operands[0];
    }
    return tensor;
  }
  bool isInside(int node, int tensor) const {
    int p = producers[size_t(tensor)];
    return p >= 0 && problem.nodes[size_t(p)].cheap && root(p) == root(node);
  }
  const std::vector<bool> copies;

private:
  // The root while clusters still grow; halves the way there.
  int find(int node) {
    while (parent[size_t(node)] != node) node = parent[size_t(node)] = parent[size_t(parent[size_t(node)])];
    return node;
  }

  const Problem &problem;
  std::vector<int> producers, parent;
  std::vector<bool> breaks;
};

// Gradients of parameters in clusters that sum up rows.
void addColumnSums(const Problem &problem, const Clusters &clusters, std::vector<FusedWork> &work) {
  const std::vector<int> producers = problem.producers();
  enum Side { Before, After };
  std::vector<bool> isBefore(problem.nodes.size(), false); // of a sum of rows in its cluster
  std::set<int> sumsRows;
  for (size_t i = problem.nodes.size(); i-- > 0;) {
    const Node &node = problem.nodes[i];
    if (!node.cheap || !clusters.isFused(int(i))) continue;
    if (node.reduces()) sumsRows.insert(clusters.root(int(i)));
    if (!node.reduces() && !isBefore[i]) continue;
    for (int tensor : node.operands)
      if (clusters.isInside(int(i), tensor)) isBefore[size_t(producers[size_t(tensor)])] = true;
  }
  std::map<std::pair<int, Side>, std::vector<size_t>> readers; // of trained parameters
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    if (!node.cheap || node.kind.isView() || !sumsRows.contains(clusters.root(int(i)))) continue;
    auto isTrained = [&](int tensor) {
      const int source = clusters.stored(tensor);
      return source >= 0 && problem.tensors[size_t(source)].kind == TensorKind::Parameter &&
             problem.tensors[size_t(source)].trainable;
    };
    if (std::ranges::any_of(node.operands, isTrained))
      readers[{clusters.root(int(i)), isBefore[i] ? Before : After}].push_back(i);
  }
  for (const auto &[cluster, nodes] : readers)
    for (size_t i : nodes) work[i].columnSums = 1 / double(nodes.size());
}

class KeptSearch {
public:
  KeptSearch(const Problem &problem, const std::vector<int64_t> &batchFactors)
      : problem(problem), batchFactors(batchFactors), clusters(problem, batchFactors), producers(problem.producers()),
        isWritten(problem.tensors.size()), kept(problem.tensors.size()), seen(problem.tensors.size()),
        madeAgain(problem.tensors.size()) {
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const Node &node = problem.nodes[i];
      for (int tensor : node.operands) {
        int source = clusters.stored(tensor);
        if (source < 0) continue;
        bool isRead =
            !node.cheap || (!node.kind.isView() && !(clusters.isFused(int(i)) && clusters.isInside(int(i), source)));
        if (isRead) isWritten[size_t(source)] = true;
      }
    }
  }

  KeptTensors find() {
    for (size_t t = 0; t < problem.tensors.size(); ++t)
      if (problem.tensors[t].saved) need(int(t));
    keepConstants();
    // Of a wider copy what it is a copy of is marked as saved.
    for (const Node &node : problem.nodes)
      if (node.kind.form == Form::Cast && isSavedNarrower(node) && !kept[size_t(node.results[0])])
        madeAgain[size_t(node.results[0])] = true;
    return {std::move(kept), std::move(madeAgain)};
  }

private:
  // A constant with more bytes than are stored in a plan, or with a part for each sample, is one value repeated.
  void keepConstants() {
    for (size_t t = 0; t < problem.tensors.size(); ++t)
      kept[t] = kept[t] || (problem.tensors[t].kind == TensorKind::Constant &&
                            problem.tensors[t].bytes() <= constants::storedConstantBytes);
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      const Node &node = problem.nodes[i];
      for (size_t o = 0; o < node.operands.size(); ++o)
        for (const auto &factors : node.rule.operands[o])
          if (problem.tensors[size_t(node.operands[o])].kind == TensorKind::Constant && batchFactors[i] >= 0 &&
              std::ranges::find(factors, batchFactors[i]) != factors.end())
            kept[size_t(node.operands[o])] = false;
    }
  }
  // Keeps the tensor or what it is made of.
  void need(int tensor) {
    tensor = clusters.stored(tensor);
    if (tensor < 0 || seen[size_t(tensor)]) return;
    seen[size_t(tensor)] = true;
    int producer = producers[size_t(tensor)];
    if (producer >= 0 && isMadeAgain(problem.nodes[size_t(producer)], producer, tensor)) {
      madeAgain[size_t(tensor)] = true;
      for (int operand : problem.nodes[size_t(producer)].operands) need(operand);
      return;
    }
    kept[size_t(tensor)] = producer >= 0;
  }
  bool isSavedNarrower(const Node &cast) const {
    const Tensor &from = problem.tensors[size_t(cast.operands[0])], &to = problem.tensors[size_t(cast.results[0])];
    return from.saved && from.elementBytes < to.elementBytes;
  }
  bool isMadeAgain(const Node &node, int index, int tensor) const {
    if (!node.cheap || !clusters.isFused(index) || isWritten[size_t(tensor)]) return false;
    if (problem.tensors[size_t(tensor)].elementBytes == 1) return false;
    return !node.reduces();
  }

  const Problem &problem;
  const std::vector<int64_t> &batchFactors;
  Clusters clusters;
  std::vector<int> producers;
  std::vector<bool> isWritten, kept, seen, madeAgain;
};

} // namespace

KeptTensors findKept(const Problem &problem, const std::vector<int64_t> &batchFactors) {
  return KeptSearch(problem, batchFactors).find();
}

std::vector<bool> findAttentionCore(const Problem &problem, const SequenceFactors &sequence) {
  std::vector<bool> core(problem.nodes.size(), false), reached(problem.tensors.size(), false);
  std::vector<bool> needsGradient = problem.needsGradient();
  for (const AttentionNodes &attention : sequence.attentions) {
    core[size_t(attention.score)] = true;
    for (int tensor : problem.nodes[size_t(attention.score)].results) reached[size_t(tensor)] = true;
  }
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    if (!node.cheap || !sequence.inAttention[i]) continue;
    auto isReached = [&](int tensor) { return bool(reached[size_t(tensor)]); };
    auto hasGradient = [&](int tensor) { return bool(needsGradient[size_t(tensor)]); };
    bool follows = std::ranges::any_of(node.operands, isReached);
    core[i] = follows || std::ranges::none_of(node.results, hasGradient); // masks belong to what reads them
    for (int tensor : node.results) reached[size_t(tensor)] = reached[size_t(tensor)] || follows;
  }
  return core;
}

std::vector<FusedWork> findFusedWork(const Problem &problem, const std::vector<int64_t> &batchDims,
                                     const std::vector<int64_t> &batchFactors) {
  Clusters clusters(problem, batchFactors);
  std::vector<FusedWork> work(problem.nodes.size());
  std::vector<std::set<int>> leaves(problem.tensors.size()); // clusters that read it from memory, -1: a heavy node
  std::map<int, double> traffic;                             // bytes of a cluster
  std::vector<double> own(problem.nodes.size(), 0);
  double scale = double(problem.batch) / double(problem.samples);
  auto bytes = [&](int tensor) {
    return problem.tensors[size_t(tensor)].bytes() * (batchDims[size_t(tensor)] >= 0 ? scale : 1);
  };
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    for (int tensor : node.operands) {
      int source = clusters.stored(tensor);
      if (source < 0) continue;
      bool inside = node.cheap && clusters.isFused(int(i)) && clusters.isInside(int(i), source);
      if (!inside && (!node.cheap || !node.kind.isView()))
        leaves[size_t(source)].insert(node.cheap ? clusters.root(int(i)) : -1);
    }
  }
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
      int source = clusters.stored(node.operands[o]);
      if (source < 0 || problem.tensors[size_t(source)].kind == TensorKind::Constant) continue;
      if (mine.isFused && clusters.isInside(int(i), source)) continue;
      double needed = std::min(bytes(source), bytes(node.operands[o]));
      if (readsPart(node))
        needed = std::min(needed, made);
      else if (mine.isFused && !read.insert({clusters.root(int(i)), source}).second)
        continue;
      mine.sources[o] = source;
      if (bytes(source) > 0) mine.reads[o] = needed / bytes(source);
      own[i] += needed;
    }
    for (size_t r = 0; r < node.results.size(); ++r) {
      if (mine.isFused && leaves[size_t(node.results[r])].empty()) continue;
      mine.writes[r] = 1;
      own[i] += bytes(node.results[r]);
    }
    traffic[clusters.root(int(i))] += own[i];
  }
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    const Node &node = problem.nodes[i];
    if (!node.cheap || node.kind.isView() || own[i] <= 0) continue;
    work[i].kernels = clusters.copies[i] ? double(node.operands.size())
                      : work[i].isFused  ? own[i] / traffic[clusters.root(int(i))]
                                         : 1;
  }
  addColumnSums(problem, clusters, work);
  return work;
}

} // namespace cleave::planner
