// Entries that data select: NonZero of a tensor that is not known before a step runs. Its result, and what is computed
// of it entry by entry, has one entry here for every position of the tensor, in row-major order. A scatter leaves out
// the positions that the data do not select.
//
//   %i = NonZero(%chosen)                        chosen: [3,2], so that %i has 6 columns
//   %y = MatMul(Gather(%x, %i[0]), %w)           computed for 6 rows
//   %z = ScatterND(%x, %i[0], %y) "add"    ->    %x + ReduceSum(Where(%chosen, %y, 0)) over the 2
//
// So a number of an unselected position reaches nothing. Its derivative must not, either: what it is divided by, or what
// an exponential is taken of, is 1 there. An operator that mixes entries, or that needs to know how many there are, is
// refused by name.
#pragma once
#include "compiler/normalize/node.h"

namespace cleave::normalize {

// The indices of the positions that data select: [rank of x, positions].
mlir::Value selectPositions(Node &n, mlir::Value x);

// The results of a node some of whose operands are selected.
Values rewriteSelected(Node &n, Rule rule);

// Fails if input `i`, which the node must know, depends on how many entries data select, unless it is a shape of them.
void checkCounts(Node &n, size_t i);

// Takes the marks away when all nodes are rewritten. Fails, with an error, where something else still reads them.
llvm::LogicalResult eraseMarks(FunctionState &state);

} // namespace cleave::normalize
