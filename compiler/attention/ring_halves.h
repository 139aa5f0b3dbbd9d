// Blocks of a causal sequence in head-tail order: their halves, and which of them a device's queries see (expand
// attention). Turn j has the keys of the device j places before.
//
//   tail of the queries x head of the keys                                   always visible
//   keys from an earlier device: head x head      from a later one: tail x tail   visible; the rest is hidden
#pragma once
#include "dialects/onnx/formula.h"

namespace cleave::attention {

class RingHalves {
public:
  // `count`: blocks, in the first dimension of every tensor.
  RingHalves(mlir::OpBuilder &builder, onnx::Formula &f, int64_t count) : builder(builder), f(f), count(count) {}

  // Head (0) or tail (1) of every block.
  mlir::Value half(mlir::Value value, int64_t dim, int64_t which) const;
  mlir::Value joined(mlir::Value head, mlir::Value tail, int64_t dim) const;
  // The head where the keys come from an earlier device, else the tail.
  mlir::Value halfByDevice(mlir::Value value, int64_t dim, int64_t turn) const;
  // `value` where the keys come from an earlier device, `neutral` elsewhere; or the other way round.
  mlir::Value whereEarlier(mlir::Value value, int64_t turn, double neutral = 0, bool isEarlier = true) const;
  // `value`, computed of what `halfByDevice` took, where that was the half `which`; elsewhere `neutral`.
  mlir::Value whereTaken(int64_t which, mlir::Value value, int64_t turn, double neutral = 0) const {
    return whereEarlier(value, turn, neutral, which == 0);
  }

private:
  mlir::Value fromEarlier(mlir::Value like, int64_t turn) const;

  mlir::OpBuilder &builder;
  onnx::Formula &f;
  int64_t count;
};

} // namespace cleave::attention
