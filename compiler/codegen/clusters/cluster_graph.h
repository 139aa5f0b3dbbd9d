// Decides which ops of a block become one kernel.
//
// Ops that cannot join a kernel (products, collectives, copies) are borders: every op gets a label that grows across a
// border, and only ops of one label are grouped, so that no cluster can wait for a border that waits for the cluster.
//
//   %a = Mul        label 0   |  cluster 0
//   %b = Exp %a     label 0   |
//   %c = Contract %b          border
//   %d = Add %c, %a label 1   |  cluster 1: reads %a from memory
//
// Recomputed work (place.at: `recomputed`) has a higher label than all before it.
// An op with no reason to run early is given its users' label: the Mul of an optimizer's moment joins the update.
#pragma once
#include "compiler/codegen/clusters/kernel_domain.h"
#include "mlir/IR/Block.h"
#include <vector>

namespace cleave::codegen {

// Most tensors that a kernel reads and writes; a GPU's kernel has room for some 500 parameters.
inline constexpr size_t maxBuffers = 28;
// Most ops: keeps one kernel's code and registers within reason.
inline constexpr size_t maxOps = 96;

// Are these operations of an update alone?
bool isOfUpdate(llvm::ArrayRef<mlir::Operation *> ops);

class ClusterGraph {
public:
  explicit ClusterGraph(mlir::Block &block);
  // Groups of ops, each in order of definition, that are worth a kernel.
  std::vector<llvm::SmallVector<mlir::Operation *>> run();

private:
  struct Cluster {
    llvm::SmallVector<mlir::Operation *> ops;
    // Stages that hold copies of a parameter make the same kernels of its rule, if it is merged with nothing else: the
    // rule's parameter, "" outside rules ("waiting" for a sign); none where it does not matter.
    std::optional<llvm::StringRef> rule;
  };
  void label();
  void findWaiting();
  bool isUpdateThatWaits(mlir::Operation *op) const;
  bool isWorthDelaying(mlir::Operation *op, int64_t until) const;
  int64_t keptFor(mlir::Operation *op, int64_t until, size_t others) const;
  void absorbIntoReductions();
  void mergeAlongValues();
  void mergeReadersOfOneTensor();
  void mergeReadersOfOneKernel();
  void mergeReadersOfOverwritten();
  void computeWhereRead();
  std::optional<llvm::SmallVector<mlir::Operation *>> madeFromMemory(mlir::Operation *op, bool storesNarrow) const;
  bool computeIn(int reader, mlir::Value value, llvm::ArrayRef<mlir::Operation *> cone);
  void eraseUnread(int cluster, llvm::ArrayRef<mlir::Operation *> ops);
  void releaseUpdates();
  bool reduces(int cluster) const;
  bool tryMerge(int a, int b);
  bool mergePlaces(int a, int b);
  bool between(int from, int to, llvm::SmallVectorImpl<int> &passed) const;
  int clusterOf(mlir::Operation *op) const;
  bool isWorthKernel(const Cluster &cluster) const;

  mlir::Block &block;
  llvm::DenseMap<mlir::Operation *, int64_t> position, labels;
  llvm::DenseMap<mlir::Operation *, int> clusterOfOp;
  llvm::DenseSet<mlir::Operation *> waiting; // for one sign that decides whether there is an update
  std::vector<Cluster> clusters;
  std::vector<int64_t> places; // of clusters, in topological order: each comes after those of its label that it reads
};

// Whether the op may join a kernel where it stands: a Transpose only if it keeps the innermost dimension, because
// reading columns of memory is slower than a copy.
bool isClusterOp(mlir::Operation *op);

// The values of `ops` that are used outside them.
llvm::SmallVector<mlir::Value> outputsOfCluster(llvm::ArrayRef<mlir::Operation *> ops);

} // namespace cleave::codegen
