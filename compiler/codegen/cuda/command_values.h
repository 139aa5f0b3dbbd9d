// Sums of elements, indices into tables and faults, which the kernels of commands have in common.
#pragma once
#include "compiler/codegen/cuda/grid_builder.h"
#include <string>

namespace cleave::codegen {

// A tensor [outer, rows, inner] and one indexed by `count` indices, [outer, count, inner].
struct IndexedRows {
  int64_t outer, rows, inner, count, globalRows;
  bool isWide; // indices of i64, else i32
  std::string text() const;
};

// Sums of 16-bit floats are kept in f32.
mlir::Type sumType(mlir::Type element);
mlir::Value zeroOf(GridBuilder &grid, mlir::Type type);
mlir::Value add(GridBuilder &grid, mlir::Value a, mlir::Value b);
mlir::Value widened(GridBuilder &grid, mlir::Value x);                      // to the type of its sums
mlir::Value narrowed(GridBuilder &grid, mlir::Value x, mlir::Type element); // from it
mlir::Value negation(GridBuilder &grid, mlir::Value a);                     // of an i1
mlir::Value isWithin(GridBuilder &grid, mlir::Value a, int64_t b);          // 0 <= a < b
// The row that index number `position` means: negative ones count from the end.
mlir::Value globalRow(GridBuilder &grid, mlir::Value indices, const IndexedRows &rows, mlir::Value position);
// Leaves `code` in the fault word where the condition holds. The fault that is found first stays.
void leaveFault(GridBuilder &grid, mlir::Value condition, mlir::Value word, mlir::Value code);

} // namespace cleave::codegen
