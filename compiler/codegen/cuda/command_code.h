// The code of the kernels of command_kernels.h: what one thread does, written with a GridBuilder.
#pragma once
#include "compiler/codegen/cuda/command_values.h"
#include <string>

namespace cleave::codegen {

// The loops of a strided copy: neighbouring ones joined where both sides allow it, the target's fastest last.
class StridedLoops {
public:
  StridedLoops(llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<int64_t> source, llvm::ArrayRef<int64_t> target);
  struct Loop {
    int64_t size, source, target; // strides in elements
  };
  const llvm::SmallVector<Loop> &all() const { return loops; }
  int64_t count() const { return total; } // elements
  // Are these rows of bytes that become columns, where 16 neighbours are one access on either side?
  bool isTransposeOfBytes() const;
  bool isContiguous() const { return loops.back().source == 1 && loops.back().target == 1; }
  int64_t innermost() const { return loops.back().size; }
  llvm::SmallVector<int64_t> outerStrides() const;
  std::string text() const;

private:
  llvm::SmallVector<Loop> loops; // one at least
  int64_t total = 1;
};

// Spatial sizes, padded in front to three dimensions.
struct PoolWindow {
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, low[3] = {0, 0, 0},
          high[3] = {0, 0, 0}, dilation[3] = {1, 1, 1};
  int64_t channels = 1;    // that lie last: elements between neighbours
  bool countsPads = false; // in an average's divisor
  int64_t elements() const { return kernel[0] * kernel[1] * kernel[2]; }
  std::string text() const;
};

// Buffers source, target; scalars their offsets.
void copyCode(GridBuilder &grid, mlir::Type element, const StridedLoops &loops, int64_t width, int64_t threads);
// The same of bytes that are transposed, tile by tile; `tiles` blocks of so many threads.
void transposeCode(GridBuilder &grid, const StridedLoops &loops);
int64_t transposeTiles(const StridedLoops &loops);
constexpr int64_t transposeThreads = 256, transposeSharedBytes = 64 * 68;
// Buffer target.
void fillCode(GridBuilder &grid, mlir::Type element, int64_t bits, int64_t width, int64_t threads);
// Buffers table, indices, out, fault; scalars first local row, fault code.
void gatherCode(GridBuilder &grid, mlir::Type element, const IndexedRows &rows, int64_t width, int64_t threads);
// Buffers x, y.
void poolCode(GridBuilder &grid, mlir::Type element, const PoolWindow &window, bool isMax, int64_t threads);
// Buffers x, dy, dx. The first largest element of a window gets its gradient, as in PyTorch.
void poolGradientCode(GridBuilder &grid, mlir::Type element, const PoolWindow &window, bool isMax, int64_t threads);
// Buffers x, y.
void cumSumCode(GridBuilder &grid, mlir::Type element, int64_t length, int64_t inner, bool exclusive, bool reverse,
                int64_t threads);
// Buffers x, fault; scalar fault code.
void checkFiniteCode(GridBuilder &grid, mlir::Type element, int64_t threads);

} // namespace cleave::codegen
