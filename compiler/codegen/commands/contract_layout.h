// How a contraction over index letters becomes one batched matrix product over strides, and which of its three tensors
// have to be copied into another order first (or, the result, afterwards). Free of MLIR.
//
//   q[b,s,h,d] k[b,t,h,d] -> y[b,h,s,t]      batch b h, M s, N t, K d: one strided dimension each, no copy
//   x[b,s,k]   w[k,n]     -> y[b,s,n]        M (b s) collapses to one dimension of size b*s
//   y[b,h,s,d] w[h,d,n]   -> o[b,s,n]        K (h d) does not collapse in y: copy y to [b,s,h,d], or run it as is when
//                                            that is cheaper
//
// M and N groups that do not collapse may also become batch dimensions with stride 0 on the other side.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

namespace cleave::codegen {

// One tensor: for every index letter its stride in elements, or nothing where the tensor lacks the index.
using IndexStrides = std::vector<std::optional<int64_t>>;

struct ContractIndices {
  std::vector<int64_t> sizes; // of every index letter
  IndexStrides lhs, rhs, out;
  // Not 0: both operands must have k innermost, and their other strides and m, n and k of the matrices that are
  // multiplied must be multiples of it. Those of the whole contraction must be such.
  int64_t alignment = 0;
  bool copiesLhs = false, copiesRhs = false; // in any case
};

// The order in which a copied tensor's indices lie, outermost first (dense).
using IndexOrder = std::vector<int64_t>;

struct ContractLayout {
  std::vector<int64_t> batch;
  int64_t m = 1, n = 1, k = 1;
  std::vector<int64_t> lhsStrides, rhsStrides, outStrides; // batch..., then m k | k n | m n
  bool swapped = false; // the strides above already call the contraction's rhs "lhs" and the reverse
  std::optional<IndexOrder> copyLhs, copyRhs, copyOut; // of the contraction's own lhs, rhs, out (before any swap)
  double seconds = 0;                                  // the estimate by which the layout was chosen
};

// The cheapest layout. Every contraction has one: all three tensors copied always works.
ContractLayout chooseContractLayout(const ContractIndices &indices);

// Dense row-major strides for a tensor whose dimensions have these index letters; letters it lacks stay empty.
IndexStrides denseStrides(const std::vector<int64_t> &sizes, const std::vector<int64_t> &letters);

} // namespace cleave::codegen
