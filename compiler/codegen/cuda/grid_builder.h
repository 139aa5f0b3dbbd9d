// Writes one GPU kernel as a gpu.func: index arithmetic, loads and stores of one or several neighbouring elements,
// loops that carry values, shared memory, barriers, and shuffles between the lanes of a warp.
//
//   GridBuilder grid(loc, gpuModule, "k0", /*buffers=*/2, /*scalars=*/0, /*threads=*/256);
//   Value i = grid.sum(grid.product(grid.block(), 256), grid.thread());
//   grid.when(grid.less(i, grid.extent()), [&] { grid.store({x}, grid.buffer(1), i, true); });
//   grid.finish();
//
// The kernel's parameters are the buffers' addresses, the scalars and the launch's extent, both i64. i1 is a byte in
// memory. All kernels of a module share one piece of dynamic shared memory.
#pragma once
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <limits>

namespace cleave::codegen {

class GridBuilder {
public:
  using Values = llvm::SmallVector<mlir::Value>;

  // `groupSteps`: the kernel is launched for many parts at once (group_launches.h), 2^groupSteps at most. Its
  // parameters are then the arena, a table, the scalars and the number of parts. A row of the table, in i64: the first
  // block of the part, its extent, its buffers' offsets in the arena. buffer(), block() and extent() are those of the
  // block's part.
  GridBuilder(mlir::Location loc, mlir::gpu::GPUModuleOp module, llvm::StringRef symbol, int64_t buffers,
              int64_t scalars, int64_t threads, std::optional<int64_t> groupSteps = {});
  mlir::OpBuilder &here() { return builder; }
  mlir::Value buffer(int64_t number) { return addresses[number]; }
  mlir::Value scalar(int64_t number) { return function.getArgument(firstScalar + number); }
  mlir::Value extent() { return extentValue; }
  mlir::Value thread(); // i64, in the block
  mlir::Value block();  // i64
  // So many blocks of the kernel must find room on a multiprocessor, as far as registers go (gpu_to_llvm).
  void setBlocks(int64_t blocks);
  void finish();

  // `count` neighbours from `index` on; one access when they are `aligned` to it, else one each.
  Values load(mlir::Value memory, mlir::Type element, mlir::Value index, int64_t count = 1, bool aligned = false);
  void store(mlir::ValueRange values, mlir::Value memory, mlir::Value index, bool aligned = false);

  mlir::Value shared(); // the block's dynamic shared memory
  void barrier();
  // The value that lane `thread ^ mask` of the warp has.
  mlir::Value shuffle(mlir::Value value, int64_t mask);

  // Fragments of matrices of 16-bit floats in a warp, as words of two neighbours (PTX ISA, ldmatrix and mma.m16n8k16).
  // Four matrices of 8 by 8 from shared memory: lanes 8i to 8i + 7 tell at which element the rows of matrix i begin, a
  // multiple of eight. With `transposed` columns are what fragments have as rows.
  Values matrices(mlir::Value index, bool transposed);
  // sums (f32, four of a lane: 16 by 8) + a (four words: 16 by 16) * b (two words: 16 by 8)
  Values multiplyAdd(mlir::Type element, mlir::ValueRange a, mlir::ValueRange b, mlir::ValueRange sums);

  void when(mlir::Value condition, llvm::function_ref<void()> then, llvm::function_ref<void()> otherwise = {});
  // `then` where the condition holds, else `otherwise`; as many values, of the same types.
  Values choose(mlir::Value condition, mlir::ValueRange otherwise, llvm::function_ref<Values()> then);
  // for (index = begin; index < end; index += step) carried = body(index, carried)
  Values loop(mlir::Value begin, mlir::Value end, int64_t step, mlir::ValueRange carried,
              llvm::function_ref<Values(mlir::Value, mlir::ValueRange)> body);

  template <typename Op, typename... Args> mlir::Value make(Args &&...args) {
    return Op::create(builder, loc, std::forward<Args>(args)...).getResult();
  }
  mlir::Value number(int64_t value);
  mlir::Value constant(mlir::TypedAttr value);
  mlir::Value sum(mlir::Value a, mlir::Value b);
  mlir::Value difference(mlir::Value a, mlir::Value b);
  mlir::Value product(mlir::Value a, mlir::Value b);
  mlir::Value product(mlir::Value a, int64_t b) { return product(a, number(b)); }
  mlir::Value quotient(mlir::Value a, mlir::Value b);  // of non-negative numbers
  mlir::Value remainder(mlir::Value a, mlir::Value b); // of non-negative numbers
  // `below`: what `a` is below, where that is known. Up to 2^31 a product of 64 bits divides; a GPU would make one of
  // 128 bits, from many of 32.
  static constexpr int64_t unknown = std::numeric_limits<int64_t>::max();
  mlir::Value quotient(mlir::Value a, int64_t b, int64_t below = unknown);
  mlir::Value remainder(mlir::Value a, int64_t b, int64_t below = unknown);
  mlir::Value minimum(mlir::Value a, mlir::Value b);
  mlir::Value less(mlir::Value a, mlir::Value b); // i1
  mlir::Value equal(mlir::Value a, mlir::Value b);
  mlir::Value both(mlir::Value a, mlir::Value b); // of i1; null counts as true
  mlir::Value select(mlir::Value condition, mlir::Value a, mlir::Value b);

private:
  mlir::Value address(mlir::Value memory, mlir::Type element, mlir::Value index);
  Values callOfWarp(llvm::StringRef intrinsic, mlir::Type result, mlir::ValueRange arguments); // of four results
  void findPart(int64_t buffers, int64_t scalars, int64_t steps);

  mlir::Location loc;
  mlir::OpBuilder builder;
  mlir::gpu::GPUFuncOp function;
  int64_t firstScalar;
  Values addresses; // of the buffers
  mlir::Value threadId, blockId, extentValue;
};

} // namespace cleave::codegen
