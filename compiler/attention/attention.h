// Attention over a split sequence: recognised in the forward graph as one operation, so that its gradient is its own,
// and written out again as blocks that travel round a ring of devices. Only steps whose sequence is split go this way;
// in all others attention stays the core ops that the exporter wrote, or becomes a library's (below).
//
//   RecognizeAttention   before the backward pass is built
//       s = Contract q, k;  x = s + mask;  p = softmax(x) in core ops;  out = Contract p, v
//       ->  out, max, sum = onnx.Attention q, k, v, positions {score = scale, mask; weigh = dropout, p * v}
//   BalanceSequence      causal attention: the sequence in head-tail order, so that all devices have as much to do
//   ExpandAttention      after the training phase: Attention and AttentionGrad become core ops on blocks
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

// `blocks`: into how many blocks the sequence will be cut. Attention whose sequence does not divide evenly, or that is
// written in a form not known here, stays as it is (and every device then has all of its keys).
std::unique_ptr<mlir::Pass> createRecognizeAttention(int64_t blocks);
std::unique_ptr<mlir::Pass> createBalanceSequence();
std::unique_ptr<mlir::Pass> createExpandAttention();

// The limits of a library's attention (docs/internals/gpu.md).
// Every version of the library takes attention with this many keys or a multiple; some want other numbers padded.
inline constexpr int64_t keysOfEveryVersion = 128;
struct LibraryAttention {
  int64_t keyMultiple = 1; // the number of keys has to be a multiple of it
  // cuDNN 9, for both passes on sm_80 and sm_90 (its frontend's checks, node/scaled_dot_product_flash_attention.h)
  int64_t featureMultiple = 8, mostFeatures = 128;
  bool takes(int64_t queries, int64_t keys, int64_t features) const;
};

// Attention by a library, on GPUs in 16 bits, where the sequence is not split over a ring:
//
//   NameAttention        before the backward pass is built: out, stats = onnx.ScaledAttention q, k, v [, bias]; what
//   the
//                        library does not take stays as it is
//   WriteOutAttention    of a copy of the step, for the reference executor: products and a softmax again
std::unique_ptr<mlir::Pass> createNameAttention(LibraryAttention limits);
std::unique_ptr<mlir::Pass> createWriteOutAttention();

// Softmax that some exporters guard, before the backward pass is built:
//
//   p' = Where(IsNaN p, 0, p)      a row without any key has scores of -inf alone, and p is 0 / 0 there
//
// GuardEmptyRows takes 0 for the largest score of such a row and 1 for its sum: p is 0, and so is its gradient, where
// that of p' would be NaN.
std::unique_ptr<mlir::Pass> createGuardEmptyRows();

// For cleave-opt: --recognize-attention="blocks=2" --balance-sequence --expand-attention
void registerAttentionPasses();

} // namespace cleave::attention
