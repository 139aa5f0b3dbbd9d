// Sums rows of updates by an index: the gradient of an embedding.
//
// Pairs (row, position) are sorted: tiles of them in shared memory, then runs of tiles are merged, where a pair finds
// its place by halving every run. Fixed parts of the sorted pairs are then summed in order, each by a team that writes
// the rows that it has alone, and leaves its share of the others in scratch memory for the part in which they begin.
//
//   16384 tokens, 50304 rows of 768 in bf16
//     sort     8 tiles of 2048 pairs            key = row << 14 | position, so no two are equal
//     merge    8 runs of 2048 -> 1
//     sum      512 parts of 32 pairs, each 96 threads of 8 columns
//     join     the same threads; most find no row that goes on into the next part
//
// The time grows with tokens, whatever rows they are of. Every sum has one order, so a run gives the same bits again.
#pragma once
#include "compiler/codegen/cuda/command_values.h"

namespace cleave::codegen {

struct ScatterPlan {
  ScatterPlan(const IndexedRows &rows, int64_t width);

  IndexedRows rows;
  int64_t width;                   // neighbouring elements of a thread
  int64_t chunks;                  // threads of a row
  int64_t tile, sortThreads;       // pairs of a tile, a power of two
  int64_t part, parts;             // pairs of a part, a power of two; parts
  int64_t shift;                   // of the row in a pair's key
  llvm::SmallVector<int64_t> runs; // of each merge: the length of what it merges, powers of two
  int64_t tiles() const { return (rows.count + tile - 1) / tile; }
  int64_t sumThreads() const { return rows.outer * parts * chunks; }
  int64_t joinThreads() const { return rows.outer * (parts - 1) * chunks; }
  int64_t partials() const { return parts > 1 ? rows.outer * parts * 2 * rows.inner : 0; } // elements, of sumType
};
inline constexpr int64_t scatterThreads = 256; // of a block that merges, sums or joins

// Buffers indices, keys, fault; scalars first local row, fault code. Pairs of rows that lie elsewhere come last. A
// block has a tile.
void sortTileCode(GridBuilder &grid, const ScatterPlan &plan);
// Buffers keys, merged. A thread has a pair.
void mergeRunsCode(GridBuilder &grid, const ScatterPlan &plan, int64_t run);
// Buffers keys, updates, out (zeros), partials (where there are several parts). A thread has `width` columns of a part.
void sumPartsCode(GridBuilder &grid, mlir::Type element, const ScatterPlan &plan);
// Buffers keys, partials, out. Threads as before, but for the last part.
void joinPartsCode(GridBuilder &grid, mlir::Type element, const ScatterPlan &plan);

} // namespace cleave::codegen
