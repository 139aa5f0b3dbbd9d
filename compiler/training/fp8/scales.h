// The scales of a training in fp8: QuantizeProducts reads them, UpdateScales makes the next step's. With delayed
// scaling each quantized tensor has two persistent tensors in f32, named after the weight of its product:
//
//   fp8.scale.input/W        what the input is multiplied by before it is rounded; 1 at first
//   fp8.history.input/W      its largest absolute value ("amax") in the last steps, a ring; 0: none
//
// and all histories have one fp8.position, that of the oldest. Several products of one weight share them.
// "input" and "weight" are rounded to e4m3, "gradient" to e5m2. Between the two passes a step function has the amaxes
// of this step as results "fp8.amax.input/W", one for each input of a product of W.
#pragma once
#include "dialects/onnx/formula.h"
#include <cmath>
#include <limits>

namespace cleave::training {

inline constexpr llvm::StringLiteral amaxPrefix = "fp8.amax.", scalePrefix = "fp8.scale.",
                                     historyPrefix = "fp8.history.", positionName = "fp8.position";

// Gradients are called "gradient/W" and rounded to e5m2, all others to e4m3.
inline bool isGradientTensor(llvm::StringRef tensor) { return tensor.starts_with("gradient/"); }
inline double largestOf(llvm::StringRef tensor) { return isGradientTensor(tensor) ? 57344 : 448; }

// The largest number of the type / 2^margin / amax; `otherwise` where amax is no number, infinite, or so small
// (1e-30) that a product's two scales would leave the range of f32.
inline mlir::Value scaleOf(onnx::Formula &f, mlir::Value amax, llvm::StringRef tensor, int64_t margin,
                           mlir::Value otherwise) {
  auto number = [&](double value) { return f.like(amax, value); };
  mlir::Value isUsable =
      f.make<onnx::AndOp>(f.make<onnx::GreaterOp>(amax, number(1e-30)),
                          f.make<onnx::LessOp>(amax, number(std::numeric_limits<double>::infinity())));
  mlir::Value most = number(std::ldexp(largestOf(tensor), -static_cast<int>(margin)));
  return f.where(isUsable, f.div(most, f.where(isUsable, amax, number(1))), otherwise);
}

} // namespace cleave::training
