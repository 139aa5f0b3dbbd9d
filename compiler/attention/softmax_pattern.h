// The softmax of attention as normalize leaves it, found from its exponential:
//
//   m = ReduceMax x;  e = Exp(x - Broadcast(StopGradient m));  p = e / Broadcast(ReduceSum e)
//   p' = Where(IsNaN p, 0, p)     some exporters: a row without any key gives 0
#pragma once
#include "dialects/onnx/Onnx.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <optional>

namespace cleave::attention {

// @model, in which softmaxes are looked for. Null with an error where there is none.
mlir::func::FuncOp modelOf(mlir::ModuleOp module);

struct Softmax {
  mlir::Value scores;        // x
  mlir::Value probabilities; // p, or p' where it is guarded
  int64_t axis = 0;
  bool zeroEmptyRows = false;
  onnx::ReduceMaxOp max;
  onnx::ReduceSumOp sum;
};
std::optional<Softmax> matchSoftmax(onnx::ExpOp exp);

} // namespace cleave::attention
