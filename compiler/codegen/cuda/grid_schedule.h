// How a kernel in linalg form lies on a grid of GPU threads. Made from the kernel's schedule (what is reduced, which
// factor is contiguous); GridKernel builds the code from it, ScheduleKernels writes extent and grain on the launches.
//
//   x * y of 100000 elements        Flat     a thread has 4 neighbouring elements; extent 100000, grain 1024: 98 blocks
//   softmax of 1024 rows of 64      Rows     a warp has a row; extent 1024 rows, grain 4 (four warps a block)
//   layer norm of 512 rows of 4096  Rows     256 threads have a row, 16 elements each in registers from phase to phase
//   loss of 50304 classes in bf16   Rows     512 threads have a row, which shared memory keeps from phase to phase
//   store sum of 1024 rows of 512   Columns  a block has 128 columns: 32 lanes of 4, and 16 rows at a time
//
// A launch has ceil(extent / grain) blocks of `threads` threads.
#pragma once
#include "compiler/codegen/kernels/kernel_schedule.h"

namespace cleave::codegen {

inline constexpr int64_t warp = 32;        // threads
inline constexpr int64_t vectorBytes = 16; // the widest load of a thread

struct GridSchedule {
  KernelSchedule::Shape shape = KernelSchedule::Flat;
  int64_t threads = 256;
  int64_t width = 1;    // neighbouring elements along the vector factor that a thread has
  int64_t team = 1;     // Rows: threads that share a row. Columns: threads that share a column
  int64_t lanes = 1;    // Columns: threads side by side
  int64_t items = 1;    // most chunks (Rows: of `width` elements; Columns: rows) that a thread has of its row or column
  bool unrolled = true; // the items are written out, and their values stay in registers from phase to phase
  int64_t extent = 1, grain = 1;
  int64_t sharedBytes = 0;
  // Rows that are not written out: what more than one phase needs of a row stays in shared memory from phase to phase,
  // in steps of `width` elements, each with the thread that reads it. The rest is read again.
  struct Kept {
    int node;       // a Load
    int phase;      // in which it is read
    int64_t offset; // bytes
  };
  llvm::SmallVector<Kept> kept;
  int64_t keptSteps = 0;              // the first ones
  int64_t blocks = 1;                 // that a multiprocessor must have registers for
  llvm::SmallVector<int64_t> inplace; // pairs (input, result) that are safe when threads share a row

  // `sharedLimit`: bytes that a block may have.
  static GridSchedule of(cleave::plan::KernelOp kernel, const KernelSchedule &schedule, int64_t sharedLimit = 0);
};

// The nodes that the targets are computed from, without those that other sums are made of.
llvm::SmallVector<char> neededBy(const KernelSchedule &schedule, llvm::ArrayRef<int> targets);
// Bytes of shared memory that each of `blocksOfLongRows` blocks on a multiprocessor of the target may have.
int64_t sharedOfBlock(llvm::StringRef target);

} // namespace cleave::codegen
