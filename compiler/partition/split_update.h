// Cutting @update by pipeline rank: each rank updates what it holds.
//
//   norm = Sqrt(Sum(a, b, c))     a, b of rank 0, c of rank 1
//   ->  rank 0: all_reduce(Sum(a, b)) over pp      rank 1: all_reduce(c) over pp
//
// A scalar that one rank has and others need (the loss, its weight) crosses the same way, as a sum over pp to which the
// others add nothing; a tensor (the other part of a tied parameter's gradient) is sent. All ranks do both in one order,
// that of the numbers that are tags of transfers and orders of sums.
#pragma once
#include "compiler/partition/stages.h"
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/ADT/StringMap.h"

namespace cleave::partition {

using Ranks = llvm::SmallBitVector; // one bit a pipeline rank

class UpdateSplit {
public:
  // `holders`: the ranks that hold each persistent tensor.
  UpdateSplit(mlir::func::FuncOp function, int64_t ranks, const llvm::StringMap<Ranks> &holders)
      : function(function), ranks(ranks), holders(holders) {}

  mlir::LogicalResult analyze();
  // @update.0, @update.1, ...: gives the next free tag.
  int64_t build(int64_t firstTag);

private:
  bool isScalar(mlir::Value value) const;
  bool reduces(mlir::Operation *op) const { return reduced.contains(op); }
  Ranks ranksWith(mlir::Value value) const;
  void need(mlir::Value value, const Ranks &where);
  // The one rank that gives a value to those that have none.
  int64_t ownerOf(mlir::Value value) const { return ranksWith(value).find_first(); }

  mlir::func::FuncOp function;
  int64_t ranks;
  const llvm::StringMap<Ranks> &holders;
  llvm::DenseMap<mlir::Operation *, Ranks> can,
      needed;                                 // who can compute the op (for a tensor: given all scalars), who needs it
  llvm::DenseSet<mlir::Operation *> reduced;  // sums whose terms lie on several ranks
  llvm::DenseMap<mlir::Value, Ranks> missing; // who needs a value that it cannot compute
};

// A scalar on every rank of the pipeline: the sum over pp of `own`, or of nothing where it is null. At the builder's
// place. `order`: its number among transfers and sums, the same on every rank.
mlir::Value sumOverStages(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type type, mlir::Value own,
                          llvm::StringRef phase, int64_t order);

} // namespace cleave::partition
