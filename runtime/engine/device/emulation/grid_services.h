// An emulated grid of GPU threads on the CPU: what kernels made by compiler/codegen/cuda/emulated_grid.h call.
//
// Blocks run one after another, in one launch from the first to the last, in the next from the last to the first, and
// so do warps and lanes. The threads of a block are fibers: each runs until it waits at a barrier, a shuffle or a
// product of matrices; when all of its warp (of its block) wait at the same place, they go on. A thread that waits where others do not, which
// would hang a GPU, ends the program with a message.
//
// So do two threads of a block that touch the same byte of shared memory between two barriers, unless both read, and a
// thread that touches what the block does not have. Only barriers order threads: a shuffle tells lanes a value and
// nothing about memory (PTX ISA, shfl.sync and bar.warp.sync), although lanes that shuffle do wait for each other.
//
//   attachGrid(dlopen(...));                           // fills in the object's table
//   kernel(0, extent, buffers, scalars);               // the CPU's kernel ABI
#pragma once
#include <cstdint>

namespace cleave::runtime {

using GridThread = void (*)(const void *context);

struct GridServices {
  // Runs blocks [first, last) of `threads` threads. `synchronizes`: threads wait for each other.
  void (*runBlocks)(GridThread thread, const void *context, int64_t first, int64_t last, int32_t threads,
                    int32_t sharedBytes, int32_t synchronizes);
  int32_t (*threadNumber)();
  int32_t (*blockNumber)();
  void (*barrier)();
  uint32_t (*shuffleXor)(uint32_t value, int32_t mask); // the value of lane `own ^ mask` of the warp
  void *(*sharedMemory)();
  // Called before the running thread reads or writes so many bytes of shared memory. `kernel`: its name, for messages.
  void (*sharedAccess)(const char *kernel, const void *at, int64_t bytes, int32_t writes);
  // Of a whole warp, as PTX's ldmatrix.m8n8.x4 and mma.m16n8k16 with sums in f32: four matrices from shared memory, a
  // lane telling where one row of 16 bytes begins; and sums[0..3] += operands[0..3] * operands[4..5].
  void (*loadMatrices)(const void *row, uint32_t *matrices, int32_t transposed);
  void (*multiply)(const uint32_t *operands, float *sums, int32_t isBf16);
};

// Gives the kernels of a loaded object (a handle of dlopen) an emulated grid, if they were made for one.
void attachGrid(void *object);

} // namespace cleave::runtime
