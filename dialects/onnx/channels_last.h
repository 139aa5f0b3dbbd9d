// Shapes of convolutions and pools in their two orders: [N, C, spatial] and, where channels are last, [N, spatial, C].
// Weights change places in the same way: [O, I, kernel] and [O, kernel, I].
//
//   channelsFirst({8, 32, 32, 3})     // {8, 3, 32, 32}
//   lastPermutation(4)                // {0, 2, 3, 1}: Transpose by it puts the channels last
#pragma once
#include "mlir/Support/LLVM.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/SmallVector.h"
#include <algorithm>

namespace cleave::onnx {

// [N, C, spatial] of a list in the order [N, spatial, C]: sizes, factors, anything that has one entry a dimension.
template <typename T> llvm::SmallVector<T> channelsFirst(llvm::ArrayRef<T> last) {
  llvm::SmallVector<T> first(last.begin(), last.end());
  if (first.size() > 2) std::rotate(first.begin() + 1, first.end() - 1, first.end());
  return first;
}
// [N, spatial, C] of a list in the order [N, C, spatial].
template <typename T> llvm::SmallVector<T> channelsLast(llvm::ArrayRef<T> first) {
  llvm::SmallVector<T> last(first.begin(), first.end());
  if (last.size() > 2) std::rotate(last.begin() + 1, last.begin() + 2, last.end());
  return last;
}

// In the order [N, C, spatial], as it is if it has that order already.
inline llvm::SmallVector<int64_t> channelsFirst(llvm::ArrayRef<int64_t> sizes, bool isLast) {
  return isLast ? channelsFirst(sizes) : llvm::SmallVector<int64_t>(sizes);
}

// Permutations of Transpose for tensors of that rank.
inline llvm::SmallVector<int64_t> lastPermutation(int64_t rank) {
  return channelsLast<int64_t>(llvm::to_vector(llvm::seq<int64_t>(rank)));
}
inline llvm::SmallVector<int64_t> firstPermutation(int64_t rank) {
  return channelsFirst<int64_t>(llvm::to_vector(llvm::seq<int64_t>(rank)));
}

} // namespace cleave::onnx
