// The arithmetic of runtime/base/philox.h as arith ops: one uniform number from the global index of an element.
#pragma once
#include "mlir/IR/Builders.h"

namespace cleave::codegen {

// seed, step, index: i64. The result is f32, in [0, 1).
mlir::Value philoxUniform(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value seed, mlir::Value step,
                          int64_t stream, mlir::Value index);

} // namespace cleave::codegen
