// Tensors cut into the blocks of a sequence, and attention's regions at work on blocks.
//
//   n = 2 blocks, x [b,s,h,d] with keys in dimension 1
//   Blocks::split        [2, b, s/2, h, d]      block p first, then the tensor as it was, shorter
//   Blocks::turn (Roll)  block p holds what block p - 1 held
//   Blocks::run          score(q, k) on [2,b,s/2,h,d] and [2,b,s/2,h,d]  ->  [2,b,h,s/2,s/2]
//
// A table of pairs [.., queries, .., keys, ..] does not travel: turn j takes the column of blocks (p - j) mod n.
#pragma once
#include "compiler/attention/sequence_layout.h"
#include "dialects/onnx/formula.h"

namespace cleave::attention {

// Which blocks meet, and how long they are: a sequence cut into `parts` of them (twice the devices for halves).
struct Turn {
  int64_t number = 0, parts = 1;
};

class Blocks {
public:
  Blocks(mlir::OpBuilder &builder, mlir::Location loc, int64_t count)
      : builder(builder), f(builder, loc), loc(loc), count(count) {}

  mlir::Value split(mlir::Value x, SequenceDims dims);
  // The inverse for what has one sequence dimension; of a tensor without any, given as n copies, the sum.
  mlir::Value join(mlir::Value blocked, mlir::RankedTensorType type, SequenceDims dims);
  mlir::Value turn(mlir::Value blocked) { return f.make<onnx::RollOp>(blocked, int64_t(0), int64_t(1)); }

  // The part of a split table of pairs: [n, n', rest] -> [n, rest], n' = (n - turn) mod n. And its transposed: zero
  // elsewhere.
  mlir::Value pick(mlir::Value table, int64_t turn);
  mlir::Value put(mlir::Value picked, int64_t turn);

  // The region's value for blocked arguments. `whole`: the arguments before they were cut (a generator's key).
  // `dims`: of the arguments. `made`: the operations in order.
  mlir::Value run(mlir::Region &region, mlir::ValueRange arguments, mlir::ValueRange whole,
                  llvm::ArrayRef<SequenceDims> dims, Turn turn, llvm::SmallVectorImpl<mlir::Operation *> *made);

private:
  llvm::DenseMap<mlir::Operation *, dist::FactorSharding> splits(mlir::Region &region,
                                                                 llvm::ArrayRef<SequenceDims> dims, int64_t parts);
  mlir::Value hit(llvm::ArrayRef<int64_t> shape, int64_t turn);
  // Clones op for blocks of length sequence/parts, with a leading dimension of count blocks.
  mlir::Value cloneForBlocks(mlir::Operation *op, mlir::ValueRange operands, const dist::FactorRule &rule,
                             const dist::FactorSharding &split, const dist::Sharding &layout, int64_t parts);
  mlir::Value draw(onnx::RandomUniformOp op, mlir::Value key, SequenceDims dims, int64_t turn);

  mlir::OpBuilder &builder;
  onnx::Formula f;
  mlir::Location loc;
  int64_t count;
};

// Reverse-mode derivative of a straight line of operations: the gradients of `wanted` from that of `result`. Fails with
// an error at an operation without derivative.
llvm::FailureOr<llvm::SmallVector<mlir::Value>> differentiate(mlir::OpBuilder &builder,
                                                              llvm::ArrayRef<mlir::Operation *> line,
                                                              mlir::Value result, mlir::Value gradient,
                                                              mlir::ValueRange wanted);

} // namespace cleave::attention
