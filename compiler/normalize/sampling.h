// Values of images at positions between their elements, from taps: the elements around a position and their weights.
//
//   position 1.25 along 4 elements, linear  ->  taps {1, weight 0.75}, {2, weight 0.25}
#pragma once
#include "compiler/normalize/window.h"

namespace cleave::normalize {

struct Tap {
  mlir::Value index;  // [tables, positions], whole numbers that lie inside
  mlir::Value weight; // the same; null: 1
};

// Samples tables [n, elements, channels], whose elements are a grid of these sizes, at the taps along each of its
// dimensions. The result [n, positions, channels] is the sum over all combinations of taps, or the largest of them.
mlir::Value sampled(Node &n, mlir::Value tables, llvm::ArrayRef<int64_t> sizes,
                    llvm::ArrayRef<llvm::SmallVector<Tap>> taps, bool isMax = false);

} // namespace cleave::normalize
