// Offsets for buffers that live during an interval of a command list, so that buffers alive together never overlap.
//
//   buffer  bytes  live        offset
//   a       256    [0, 2]      0
//   b       256    [1, 3]      256
//   c       256    [3, 5]      0       a is dead by then
//
// First fit in order of size, and where that leaves gaps in other orders: by bytes times duration, by duration, and
// from each of the three on with what did not fit moved forward, to places drawn at random (the same in every run).
// Some first fit is a best layout, so small ones are found. Free of MLIR.
#pragma once
#include "compiler/elements/buffer_alignment.h"
#include <vector>

namespace cleave::codegen {

struct BufferInterval {
  int64_t bytes = 0;
  int64_t first = 0, last = 0; // command positions, both inclusive
};

// The most that is alive at one position.
struct MemoryBound {
  int64_t bytes = 0;
  int64_t position = 0; // the first where that is
};
MemoryBound boundMemory(const std::vector<BufferInterval> &buffers);

struct MemoryPlan {
  std::vector<int64_t> offsets; // one a buffer
  int64_t peak = 0;             // bytes: the end of the highest buffer
  MemoryBound bound;            // no peak is lower
};
MemoryPlan planMemory(const std::vector<BufferInterval> &buffers);

} // namespace cleave::codegen
