// Scalar code that converts f32 to a float of 8 bits and back, in integers, since no CPU and only some GPUs have an
// instruction for it: as runtime/base/elements.h, to which test/lit/codegen and the golden models compare it.
//
//   %code : i8 = toEightBits(%x : f32, f8E4M3FN)      1.0 -> 0x38, 450.0 -> 0x7e (448.0), NaN -> 0x7f
#pragma once
#include "mlir/IR/Builders.h"

namespace cleave::onnx {

mlir::Value toEightBits(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value single, mlir::Type element);
mlir::Value fromEightBits(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value code, mlir::Type element);

} // namespace cleave::onnx
