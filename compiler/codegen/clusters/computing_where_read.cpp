// A value that a kernel stores only because other kernels read it is computed in those instead, if they read no more
// for it than the value itself. Its store and the memory are saved: a tensor in 16 bits widened before its sums, a
// gradient times the factors of its columns.
//
//   kernel 1   %w = Cast %x : bf16 -> f32, stored;  %s = ReduceSum %w          %s = ReduceSum (Cast %x)
//   kernel 2   ... reads %s and %w                                      ->     ... reads %s and %x
#include "compiler/codegen/clusters/cluster_graph.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
namespace cleave::codegen {
namespace {

constexpr int64_t smallTensor = 1 << 16; // bytes; a launch costs more than to move them
constexpr size_t mostOps = 32;           // that are computed again

// Read from memory by the ops, each once.
llvm::SmallSetVector<Value, 8> readsOf(ArrayRef<Operation *> ops) {
  llvm::SmallPtrSet<Operation *, 32> inside(ops.begin(), ops.end());
  llvm::SmallSetVector<Value, 8> reads;
  for (Operation *op : ops)
    for (Value operand : op->getOperands())
      if (Operation *def = operand.getDefiningOp(); !def || !inside.contains(def)) reads.insert(operand);
  return reads;
}

} // namespace

// The ops of its kernel that `op` is made by, in order, from what is in memory in any case. Nothing: they are costly.
// `storesNarrow`: or from what they widen, which is stored in the place of `op`.
std::optional<SmallVector<Operation *>> ClusterGraph::madeFromMemory(Operation *op, bool storesNarrow) const {
  const int cluster = clusterOf(op);
  llvm::SmallSetVector<Operation *, 16> found;
  found.insert(op);
  for (size_t i = 0; i < found.size(); ++i) {
    if (isReduction(found[i]) || isCostly(found[i]) || isa<onnx::RandomUniformOp>(found[i]) || i >= mostOps)
      return std::nullopt;
    for (Value operand : found[i]->getOperands()) {
      Operation *def = operand.getDefiningOp();
      if (!def || clusterOf(def) != cluster) continue;
      const bool isStored =
          !isView(def) && llvm::any_of(def->getUsers(), [&](Operation *user) { return clusterOf(user) != cluster; });
      if (!isStored && !(storesNarrow && onnx::isWideningCast(found[i]))) found.insert(def);
    }
  }
  SmallVector<Operation *> cone = found.takeVector();
  llvm::sort(cone, [&](Operation *a, Operation *b) { // clones have the place of their reader
    const int64_t first = position.lookup(a), second = position.lookup(b);
    return first != second ? first < second : a != b && a->isBeforeInBlock(b);
  });
  return cone;
}

// Replaces `value` in the cluster by clones of `cone`, if they are a kernel together.
bool ClusterGraph::computeIn(int reader, Value value, ArrayRef<Operation *> cone) {
  Cluster &cluster = clusters[reader];
  auto first = llvm::find_if(cluster.ops, [&](Operation *op) { return llvm::is_contained(op->getOperands(), value); });
  if (cluster.ops.size() + cone.size() > maxOps) return false;
  OpBuilder builder(*first);
  IRMapping mapping;
  SmallVector<Operation *> ops(cluster.ops.begin(), first), clones;
  for (Operation *op : cone) {
    Operation *clone = builder.clone(*op, mapping);
    clone->setDiscardableAttrs(llvm::to_vector((*first)->getDiscardableAttrs()));
    clones.push_back(clone);
    clusterOfOp[clone] = reader;
    position[clone] = position[*first];
    labels[clone] = labels[*first];
  }
  ops.append(clones);
  ops.append(first, cluster.ops.end());
  Value made = clones.back()->getResult(0);
  auto isHere = [&](OpOperand &use) { return clusterOf(use.getOwner()) == reader; };
  value.replaceUsesWithIf(made, isHere);
  SmallVector<Value> outputs = outputsOfCluster(ops);
  if (readsOf(ops).size() + outputs.size() <= maxBuffers && KernelDomain::of(ops, outputs)) {
    cluster.ops = std::move(ops);
    return true;
  }
  made.replaceAllUsesWith(value);
  for (Operation *clone : llvm::reverse(clones)) {
    clusterOfOp.erase(clone);
    position.erase(clone);
    labels.erase(clone);
    clone->erase();
  }
  return false;
}

// Erases those of the cluster's `ops` that nothing reads any more.
void ClusterGraph::eraseUnread(int cluster, ArrayRef<Operation *> ops) {
  for (Operation *op : llvm::reverse(ops)) {
    if (!op->use_empty()) continue;
    llvm::erase(clusters[cluster].ops, op);
    clusterOfOp.erase(op);
    position.erase(op);
    labels.erase(op);
    op->erase();
  }
}

void ClusterGraph::computeWhereRead() {
  SmallVector<Value> values;
  for (Operation &op : block)
    if (clusterOf(&op) >= 0 && op.getNumResults() == 1 && !isView(&op) && bytesOf(op.getResult(0)) >= smallTensor)
      values.push_back(op.getResult(0));
  for (Value value : values) {
    Operation *op = value.getDefiningOp();
    const int home = clusterOf(op);
    llvm::SmallSetVector<int, 4> readers;
    bool isReadByOthers = false, isReadLate = false;
    for (Operation *user : value.getUsers()) {
      const int reader = clusterOf(user);
      if (reader == home) continue;
      const bool isKernel =
          reader >= 0 && isWorthKernel(clusters[reader]) && clusters[reader].rule == clusters[home].rule;
      isReadByOthers |= !isKernel;
      if (!isKernel) continue;
      readers.insert(reader);
      isReadLate |= labels.lookup(user) != labels.lookup(op);
    }
    if (readers.empty()) continue;
    // Readers may read as much for it, but less if it is stored in any case. Where it waits for a product or an
    // exchange, they read half: what it is made from is kept so long; and nothing else if it is stored, too.
    const int64_t bytes = bytesOf(value),
                  most = isReadLate ? (isReadByOthers ? 0 : bytes / 2) : (isReadByOthers ? bytes - 1 : bytes);
    std::optional<SmallVector<Operation *>> cone = madeFromMemory(op, /*storesNarrow=*/false);
    auto readsMore = [&](int reader) {
      const auto known = readsOf(clusters[reader].ops);
      int64_t more = 0;
      for (Value read : readsOf(*cone))
        if (!known.contains(read) && bytesOf(read) >= smallTensor) more += bytesOf(read);
      return more > most;
    };
    if (isReadByOthers) { // each for itself
      if (cone) readers.remove_if(readsMore);
      if (!cone || readers.empty()) continue;
    } else if (!cone || llvm::any_of(readers, readsMore)) {
      cone = madeFromMemory(op, /*storesNarrow=*/true);
      if (!cone || llvm::any_of(readers, readsMore)) continue;
    }
    for (int reader : readers) computeIn(reader, value, *cone);
    eraseUnread(home, *cone);
  }
  int64_t number = 0; // clones have the place of their reader so far
  for (Operation &op : block) position[&op] = number++;
}

// An update is taken out of a kernel whose results are wanted by one that reads the old parameter: the new one could
// not lie in the old one's place. It waits for the update's phase then, where equal ones are launched together.
void ClusterGraph::releaseUpdates() {
  auto isUpdate = [](Operation *op) { return isOfUpdate(op); };
  llvm::DenseMap<Attribute, Operation *> reads;
  for (auto read : block.getOps<onnx::ReadOp>()) reads.try_emplace(read.getParamAttr(), read);
  for (auto write : block.getOps<onnx::WriteOp>()) {
    Operation *made = write.getOperand().getDefiningOp(), *read = reads.lookup(write.getParamAttr());
    const int home = made ? clusterOf(made) : -1;
    if (home < 0 || !read || !isUpdate(made) || llvm::all_of(clusters[home].ops, isUpdate)) continue;
    auto waitsForHome = [&](Operation *reader) {
      const int cluster = clusterOf(reader);
      return cluster >= 0 && cluster != home && llvm::any_of(readsOf(clusters[cluster].ops), [&](Value value) {
               return value.getDefiningOp() && clusterOf(value.getDefiningOp()) == home;
             });
    };
    if (llvm::none_of(read->getUsers(), waitsForHome)) continue;
    // The update's operations that are connected with this one.
    llvm::SmallSetVector<Operation *, 16> released;
    released.insert(made);
    for (size_t i = 0; i < released.size(); ++i) {
      auto visit = [&](Operation *op) {
        if (op && clusterOf(op) == home && isUpdate(op)) released.insert(op);
      };
      for (Value operand : released[i]->getOperands()) visit(operand.getDefiningOp());
      for (Operation *user : released[i]->getUsers()) visit(user);
    }
    SmallVector<Operation *> rest, ops;
    for (Operation *op : clusters[home].ops) (released.contains(op) ? ops : rest).push_back(op);
    auto isReadByRest = [&](Operation *op) {
      return llvm::any_of(op->getUsers(), [&](Operation *user) { return llvm::is_contained(rest, user); });
    };
    if (llvm::any_of(ops, isReadByRest) || !KernelDomain::of(ops, outputsOfCluster(ops)) ||
        !KernelDomain::of(rest, outputsOfCluster(rest)))
      continue;
    for (Operation *op : ops) clusterOfOp[op] = int(clusters.size());
    clusters[home].ops = std::move(rest);
    places.push_back(places[home]);
    Cluster update{ops, clusters[home].rule};
    clusters.push_back(std::move(update));
  }
}

} // namespace cleave::codegen
