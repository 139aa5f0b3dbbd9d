// Integer tensors whose elements depend on one dimension only: what index arithmetic of exported masks looks like.
//
//   %r = onnx.Constant dense<[0, 1, 2]> ; %i = onnx.Broadcast %r to [8, 1, 3, 5] along dim 2
//   alongAxis(%i) -> {dim = 2, values = {0, 1, 2}}         a splat of 7 -> {dim = -1, values = {7}}
//
// Found by looking through broadcasts and reshapes, never by evaluating the whole tensor.
#pragma once
#include "compiler/normalize/core_builder.h"

namespace cleave::normalize {

struct AlongAxis {
  int64_t dim = -1; // -1: the same everywhere
  Dims values;      // one for each index along dim
};
std::optional<AlongAxis> alongAxis(mlir::Value value);

// Entry `index` along the last dimension of `indices` (dropped): the component of index tuples.
mlir::Value component(CoreBuilder &b, mlir::Value indices, int64_t index);

} // namespace cleave::normalize
