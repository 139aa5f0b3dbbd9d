// Merges clusters and keeps them in topological order: a cluster comes after those that it reads. So a path from one
// cluster to another passes only clusters between the two, and only these are searched (Pearce and Kelly: A dynamic
// topological sort algorithm for directed acyclic graphs, 2007).
#include "compiler/codegen/clusters/cluster_graph.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
namespace cleave::codegen {

bool ClusterGraph::tryMerge(int a, int b) {
  Cluster &first = clusters[a], &second = clusters[b];
  if (labels[first.ops.front()] != labels[second.ops.front()]) return false;
  if (first.rule && second.rule && *first.rule != *second.rule) return false;
  if (first.ops.size() + second.ops.size() > maxOps) return false;
  SmallVector<Operation *> ops(first.ops);
  ops.append(second.ops);
  llvm::sort(ops, [&](Operation *x, Operation *y) { return position[x] < position[y]; });
  SmallVector<Value> outputs = outputsOfCluster(ops);
  llvm::SmallPtrSet<Operation *, 32> inside(ops.begin(), ops.end());
  llvm::SmallDenseSet<Value> inputs;
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      if (!inside.contains(operand.getDefiningOp())) inputs.insert(operand);
  if (inputs.size() + outputs.size() > maxBuffers) return false;
  if (!KernelDomain::of(ops, outputs)) return false;
  if (!mergePlaces(a, b)) return false;
  for (Operation *op : second.ops) clusterOfOp[op] = a;
  first.ops = std::move(ops);
  if (!first.rule) first.rule = second.rule;
  second.ops.clear();
  return true;
}

// Gives `a` and `b` one place in the order. False: a path leads from one through a third cluster to the other.
bool ClusterGraph::mergePlaces(int a, int b) {
  if (places[a] > places[b]) std::swap(a, b);
  SmallVector<int> readersOfA, producersOfB; // between the two, also indirect ones
  if (!between(a, b, readersOfA)) return false;
  between(b, a, producersOfB);
  SmallVector<int> reordered(producersOfB);
  reordered.push_back(a);
  reordered.append(readersOfA);
  SmallVector<int64_t> freePlaces{places[b]};
  for (int cluster : reordered) freePlaces.push_back(places[cluster]);
  llvm::sort(freePlaces);
  for (auto [cluster, place] : llvm::zip(reordered, freePlaces)) places[cluster] = place; // the last one stays free
  places[b] = places[a];
  return true;
}

// Finds the clusters between `from` and `to` that depend on `from`, or on which `from` depends where `to` comes first;
// in their order. False: a path through one of them leads to `to`. A path can only pass clusters of the same label.
bool ClusterGraph::between(int from, int to, SmallVectorImpl<int> &passed) const {
  const bool forward = places[from] < places[to];
  llvm::SmallDenseSet<int> seen;
  bool isApart = true;
  auto follow = [&](int cluster) {
    for (Operation *op : clusters[cluster].ops) {
      auto visit = [&](Operation *other) {
        const int next = other ? clusterOf(other) : -1;
        if (next < 0 || next == cluster || labels.lookup(other) != labels.lookup(op)) return;
        if (next == to)
          isApart &= cluster == from;
        else if ((forward ? places[next] < places[to] : places[next] > places[to]) && seen.insert(next).second)
          passed.push_back(next);
      };
      if (forward)
        llvm::for_each(op->getUsers(), visit);
      else
        for (Value operand : op->getOperands()) visit(operand.getDefiningOp());
    }
  };
  follow(from);
  for (size_t i = 0; i < passed.size() && isApart; ++i) follow(passed[i]);
  llvm::sort(passed, [&](int x, int y) { return places[x] < places[y]; });
  return isApart;
}

} // namespace cleave::codegen
