// Attention over a split sequence: recognised in the forward graph as one operation, so that its gradient is its own,
// and written out again as blocks that travel round a ring of devices. Only steps whose sequence is split go this way;
// in all others attention stays the core ops that the exporter wrote, or becomes a library's (below).
//
// With `blocks` = n the sequence is cut into n blocks, one a device of mesh axis cp. All tensors get a leading
// dimension of n, which PropagateShardings splits over cp; onnx.Roll along it is one message to the next device:
//
//   q [b,s,h,d] -> [n,b,s/n,h,d], the same for k and v;   m, l, o = the online softmax's state, one a row
//   n times:  x = score(q, k);  m' = max(m, max x);  p = exp(x - m');  l = l * exp(m - m') + sum p
//             o = o * exp(m - m') + p v;             k, v = Roll(k), Roll(v)
//   out = o / l
//
// (Liu, Zaharia, Abbeel: Ring Attention with Blockwise Transformers, 2023; the online softmax is Milakov and
// Gimelshein's, 2018.) The backward pass computes p again from the kept m and l, block by block; the gradients of k and
// v travel with their blocks and arrive home after n turns. The blocked program means the same on one device, so the
// reference executor runs it too; that it runs on a ring follows from the sharding algebra alone.
#pragma once
#include "mlir/Pass/Pass.h"
#include <memory>

namespace cleave::attention {

// The limits of a library's attention (docs/internals/gpu.md).
// Every version of the library takes attention with this many keys or a multiple; some want other numbers padded.
inline constexpr int64_t keysOfEveryVersion = 128;
struct LibraryAttention {
  int64_t keyMultiple = 1; // the number of keys has to be a multiple of it
  // cuDNN 9, for both passes on sm_80 and sm_90 (its frontend's checks, node/scaled_dot_product_flash_attention.h)
  int64_t featureMultiple = 8, mostFeatures = 128;
  bool takes(int64_t queries, int64_t keys, int64_t features) const;
};

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/attention/Passes.h.inc"

} // namespace cleave::attention
