// The values of a block as functions of a few others, element by element, known by samples: a function is recognised
// however it was written down.
//
//   SampledValues values;
//   values.seed(u, {-1.5, 0.25, 3});
//   values.follow(block);                  // %t = Tanh %u; %y = Mul %t, %half; ...
//   values.of(y)                           // 0.5 * tanh of each sample; null: y depends on something else
#pragma once
#include "mlir/IR/Block.h"
#include "llvm/ADT/DenseMap.h"
#include <vector>

namespace cleave::codegen {

using Samples = std::vector<double>;

class SampledValues {
public:
  // All seeds have as many samples, of the same elements in row-major order.
  void seed(mlir::Value value, Samples samples) { known[value] = std::move(samples); }
  // Through elementwise arithmetic, casts (which are taken as exact), reshapes and constants of one value: only what
  // is computed from the seeds is looked at.
  void follow(mlir::Block &block);
  const Samples *of(mlir::Value value) const;
  // The followed values, in no particular order.
  llvm::ArrayRef<mlir::Value> followed() const { return found; }

private:
  bool evaluate(mlir::Operation &op, Samples &result) const;

  llvm::DenseMap<mlir::Value, Samples> known;
  llvm::SmallVector<mlir::Value> found;
};

} // namespace cleave::codegen
