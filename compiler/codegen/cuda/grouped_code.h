// Products of rows with the matrices of their groups (plan.GroupedContract), where the device alone knows how many rows
// a group has.
//
// Pairs of group and row are sorted (scatter_code.h). A table then tells each tile of rows its group, for as many tiles
// as there can be; the blocks of those that are not there return at once, as in MegaBlocks (Gale et al., "MegaBlocks:
// Efficient Sparse Training with Mixture-of-Experts", 2022). Rows are read and written where they lie.
//
//   8192 rows of 4096, 8 groups of [4096, 14336] in bf16
//     sort       4 tiles of 2048 pairs, merged
//     tiles      72 of 128 rows: 8192 / 128, and one more for each group
//     multiply   72 x 112 blocks, each of 128 rows by 128 columns
//   the gradient of the matrices
//     tiles      8, each all rows of a group
//     multiply   8 x 32 x 112 blocks, each of 128 by 128 numbers of a matrix; a block sums up the rows in their order
//
// Floats of 16 bits are multiplied by tensor cores from sm_80 on, with sums in f32; all others by fused
// multiply-adds. Every sum has one order, so a run gives the same bits again.
#pragma once
#include "compiler/codegen/cuda/scatter_code.h"
#include "plan/plan.pb.h"

namespace cleave::codegen {

inline constexpr int64_t groupedThreads = 256; // of a block; of one that makes the table scatterThreads

// Neighbouring elements that one access moves.
struct GroupedWidths {
  int64_t lhs = 1, rhs = 1, out = 1;
};

struct GroupedPlan {
  GroupedPlan(const plan::GroupedContract &product, bool hasTensorCores, GroupedWidths widths);

  ScatterPlan sort; // of the rows by their group
  llvm::SmallVector<int64_t> rows, lhsStrides, rhsStrides;
  int64_t k, n, groups;
  bool sumsRows, isTransposed;
  bool hasOthers; // rows of groups that are elsewhere, whose results are 0
  bool onTensorCores;
  GroupedWidths widths;
  int64_t tileRows, tileColumns; // of a block's results
  int64_t depth;                 // that a block sums up at a time
  int64_t tiles;                 // that there can be: entries of the table
  int64_t groupsOfTiles() const { return groups + hasOthers; }
  static constexpr int64_t entryNumbers = 4;
  int64_t tableNumbers() const { return entryNumbers * tiles; }
  int64_t lines() const; // of blocks: tiles of rows, or with sumsRows those of all matrices
  int64_t columns() const { return (n + tileColumns - 1) / tileColumns; }
  int64_t blocks() const { return lines() * columns(); }
  int64_t chunk() const;                                // neighbours that a thread moves
  int64_t gap() const { return onTensorCores ? 8 : 1; } // elements between lines in shared memory: other banks
  int64_t sharedBytes(int64_t sumBytes) const;          // of a block that multiplies; of a number where it is summed up
  std::string text() const;
};

// Buffers keys, table. A thread has a group, and writes the entries of its tiles: the group, the first of the rows in
// their order, where the group ends, and in how many steps its block sums up (i64); a tile that is not there begins at
// the end.
void groupTilesCode(GridBuilder &grid, const GroupedPlan &plan);
// Buffers keys, table, lhs, rhs, out.
void groupedProductCode(GridBuilder &grid, mlir::Type element, mlir::Type result, const GroupedPlan &plan);

} // namespace cleave::codegen
