// Cutting @update by pipeline rank: each rank updates what it holds.
//
//   norm = Sqrt(Sum(a, b, c))     a, b of rank 0, c of rank 1
//   ->  rank 0: all_reduce(Sum(a, b)) over pp      rank 1: all_reduce(c) over pp
//
// A scalar that one rank has and others need (the loss, its weight) crosses the same way, as a sum over pp to which the
// others add nothing; a tensor (the other part of a tied parameter's gradient) is sent. All ranks do both in one order,
// that of the numbers that are tags of transfers and orders of sums.
//
// With results on the first rank alone, what only they need is sent to it and no rank waits for another: where steps
// run into each other, the last rank has begun the next one when the first ends its own.
#pragma once
#include "dialects/onnx/Onnx.h"
#include "dialects/place/Place.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/SmallBitVector.h"
#include "llvm/ADT/StringMap.h"
#include <map>

namespace cleave::partition {

using Ranks = llvm::SmallBitVector; // one bit a pipeline rank

class UpdateSplit {
public:
  // Who has the function's results.
  enum class Results { OfAll, OfFirst };
  // `holders`: the ranks that hold each persistent tensor.
  UpdateSplit(mlir::func::FuncOp function, int64_t ranks, const llvm::StringMap<Ranks> &holders, Results results)
      : function(function), ranks(ranks), holders(holders), results(results) {}

  mlir::LogicalResult analyze();
  // Whether an update needs a number of all ranks (to clip by the norm of all gradients, to skip an overflow).
  bool meets() const;
  // @update.0, @update.1, ...: gives the next free tag. `channel` and those behind it: of what they send each other.
  int64_t build(int64_t firstTag, int64_t channel);

private:
  bool isScalar(mlir::Value value) const;
  bool reduces(mlir::Operation *op) const { return reduced.contains(op); }
  Ranks ranksWith(mlir::Value value) const;
  void need(mlir::Value value, const Ranks &where);
  // The one rank that gives a value to those that have none.
  int64_t ownerOf(mlir::Value value) const { return ranksWith(value).find_first(); }
  void send(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value value, int64_t to, int64_t tag,
            llvm::StringRef why) const;
  mlir::Value receive(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type type, int64_t from, int64_t tag,
                      llvm::StringRef why) const;
  // Tensors of each size have a channel of their own, beside the scalars', and one buffer each: a ring's buffers are as
  // large as its largest message, and a tied table is often a model's largest tensor. One is enough: what a step sends
  // has been received before the other side ends that step.
  void giveTensorsChannels(mlir::func::FuncOp made);

  mlir::func::FuncOp function;
  int64_t ranks;
  const llvm::StringMap<Ranks> &holders;
  Results results;
  int64_t channel = 0;
  std::map<int64_t, int64_t> channelOfBytes;
  llvm::DenseMap<mlir::Operation *, Ranks> can,
      needed;                                 // who can compute the op (for a tensor: given all scalars), who needs it
  llvm::DenseSet<mlir::Operation *> reduced;  // sums whose terms lie on several ranks
  llvm::DenseMap<mlir::Value, Ranks> missing; // who needs a value that it cannot compute
};

// A scalar on every rank of the pipeline: the sum over pp of `own`, or of nothing where it is null. At the builder's
// place. `order`: its number among transfers and sums, the same on every rank.
mlir::Value sumOverStages(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type type, mlir::Value own, Phase phase,
                          int64_t order);

} // namespace cleave::partition
