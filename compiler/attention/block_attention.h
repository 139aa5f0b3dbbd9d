// Attention of one block of queries with one block of keys, forward and backward: what every turn of the ring does.
//
//   Rows all = attend(arguments of turn 0);  all = merge(all, attend(arguments of turn 1));  out = all.out / all.sum
//
// `Rows` is the online softmax's state: for every row the maximum so far, the sum of exp(x - max), and that sum's
// weighted values.
#pragma once
#include "compiler/attention/blocks.h"

namespace cleave::attention {

struct Rows {
  mlir::Value max, sum, out;
};

// The rows of a block as the backward pass knows them: the forward pass' state, the sum over a row of out times its
// gradient, and the gradient of out.
struct RowGradients {
  mlir::Value max, sum, delta, out;
};

class BlockAttention {
public:
  template <typename Op>
  BlockAttention(mlir::OpBuilder &builder, mlir::Location loc, Op op)
      : blocks(builder, loc, op.getBlocks()), f(builder, loc), count(op.getBlocks()),
        scoreDims{int64_t(op.getScoreQuery()), int64_t(op.getScoreKey())}, outQuery(op.getOutQuery()),
        zeroEmptyRows(op.getZeroEmptyRows()), builder(builder), score(op.getScore()), weigh(op.getWeigh()) {
    size_t number = op.getQueryDims().size();
    for (auto [value, query, key] :
         llvm::zip_equal(mlir::ValueRange(op.getXs()).take_front(number), op.getQueryDims(), op.getKeyDims())) {
      xs.push_back(value);
      dims.push_back({query, key});
    }
  }

  // `parts`: into how many blocks of the arguments' length the sequence would be cut; `turn`: of a table's blocks. Null
  // values: the regions cannot be cut so.
  Rows attend(mlir::ArrayRef<mlir::Value> arguments, int64_t turn, int64_t parts);
  Rows merge(Rows a, Rows b);
  // Gradients of the arguments `wanted`, null where the block's result does not depend on one.
  llvm::FailureOr<llvm::SmallVector<mlir::Value>> gradients(mlir::ArrayRef<mlir::Value> arguments,
                                                            mlir::ArrayRef<int64_t> wanted, const RowGradients &rows,
                                                            int64_t turn, int64_t parts);

  // One number a row, wherever the rows are in `out`, and the sum of a * b over what is not a row.
  mlir::Value alongOut(mlir::Value rows, mlir::Value out);
  mlir::Value rowProducts(mlir::Value a, mlir::Value b);
  // The sums to divide by: an empty row's is 0 and gives 0 if the exporter guarded it.
  mlir::Value divisor(mlir::Value sum);
  // Where the rows' tensors (maxima, sums) count queries.
  SequenceDims rowDims() const { return {scoreDims.query - (scoreDims.key < scoreDims.query), -1}; }

  Blocks blocks;
  onnx::Formula f;
  int64_t count;
  SequenceDims scoreDims;
  int64_t outQuery;
  bool zeroEmptyRows;
  llvm::SmallVector<mlir::Value> xs; // the operands
  llvm::SmallVector<SequenceDims> dims;

private:
  struct Letters { // einsum indices of the row statistics and of out; the block index comes first
    llvm::SmallVector<int64_t> rows, out;
  };
  Letters letters();
  bool fromProbabilities(mlir::Value value);
  mlir::Value weighted(mlir::Value p, mlir::ArrayRef<mlir::Value> arguments, int64_t turn, int64_t parts,
                       llvm::SmallVectorImpl<mlir::Operation *> *made);

  mlir::OpBuilder &builder;
  mlir::Region &score, &weigh;
};

} // namespace cleave::attention
