// The iteration domain that a set of core ops shares: its factors, and where each operand lies in them.
//
// Every dimension of every value is one factor or several, major first. Elementwise ops make the factors of their
// operands the same, a Reshape cuts factors, a Transpose, Broadcast or Slice only says how a value is looked at. So a
// cluster is a loop nest over factors, and each tensor is read or written at a linear function of the factors' indices:
//
//   %m = ReduceMax %x {axes=[2]} : 8x16x64 -> 8x16          factors  d0 = 128 (8x16), d1 = 64 reduced
//   %b = Broadcast %m : 8x16 -> 8x16x64                      %x is read at 64 d0 + d1, %m depends on d0 only
//   %d = Sub %x, %b                                          %d is written at 64 d0 + d1
//
// FormClusters asks it whether ops can share a kernel; LowerKernelsToLinalg makes the indexing maps from it.
#pragma once
#include "dialects/onnx/kinds.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include <optional>

namespace cleave::codegen {

using onnx::bytesOf;
using onnx::isReduction;
using onnx::isView;

// offset + sum of strides[factor] * index[factor], in elements.
struct LinearForm {
  llvm::SmallVector<int64_t> strides;
  int64_t offset = 0;
};
using FactorSet = uint64_t; // bit f: factor f

struct KernelDomain {
  llvm::SmallVector<int64_t> sizes;                    // of the factors, outermost first
  FactorSet reduced = 0;                               // what the reductions run over; empty: an elementwise kernel
  llvm::DenseMap<mlir::OpOperand *, LinearForm> reads; // operands from outside the ops
  llvm::DenseMap<mlir::Value, LinearForm> writes;      // outputs
  llvm::DenseMap<mlir::Operation *, LinearForm> generators; // Iota: the index; RandomUniform: the global element
  llvm::DenseMap<mlir::Value, FactorSet> shape;             // the factors of a value's type
  llvm::DenseMap<mlir::Value, FactorSet> depends;           // those its elements really differ in: a subset of shape

  FactorSet all() const { return sizes.size() == 64 ? ~FactorSet(0) : (FactorSet(1) << sizes.size()) - 1; }

  // The domain of `ops` (in order of definition), of whose results `outputs` are wanted; nothing if the ops cannot
  // share a loop nest: shapes that do not line up, reductions over different factors, an output that some iterations
  // would write twice, or a costly value that would be computed anew for every row.
  static std::optional<KernelDomain> of(llvm::ArrayRef<mlir::Operation *> ops, llvm::ArrayRef<mlir::Value> outputs);
};

// Ops that a kernel may hold: elementwise, generators, reductions, and views of elements (Reshape, Transpose,
// Broadcast, Slice of a value from outside, Constant with one value).
bool canJoinKernel(mlir::Operation *op);
// Needs many instructions an element (exp, erf, division ...).
bool isCostly(mlir::Operation *op);

} // namespace cleave::codegen
