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
#include "runtime/base/attention_band.h"
#include <memory>
#include <optional>

namespace cleave::attention {

// What a library's attention takes (docs/internals/gpu.md). By default: cuDNN from 9.6 on, which knows both passes on
// every GPU from sm_80 on (its frontend's checks, node/sdpa_support_surface.h).
struct LibraryAttention {
  int64_t keyMultiple = 1; // the number of keys has to be a multiple of it
  int64_t featureMultiple = 8, maxFeatures = 128;
  bool anyBand = false; // else causal masks, and windows that end at a query's own position or at the last key's
  bool softCap = false; // with a band or a bias only where any band is taken, too
  int64_t parts = 1;    // into so many the library's sequence is cut on a ring: twice the devices

  // Features of queries and keys, and of values.
  bool takes(int64_t queries, int64_t keys, int64_t features, int64_t valueFeatures) const;
  bool takesBand(const runtime::AttentionBand &band, int64_t queries, int64_t keys, bool isBiased) const;
  bool takesSoftCap(const runtime::AttentionBand &band, bool isBiased) const;
};

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/attention/Passes.h.inc"

// What RaiseAttention leaves to the library of a GPU ("sm_90"), or none. `everyVersion`: that is supported, not only
// those later than 9.15.0.
// `blocks`: of the sequence, one a device of a ring. `headWays`: devices that heads are split over.
std::optional<RaiseAttentionOptions> libraryAttention(llvm::StringRef gpu, bool everyVersion, bool deterministic,
                                                      int64_t blocks, int64_t headWays);

} // namespace cleave::attention
