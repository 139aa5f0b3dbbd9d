// Tensor data as the bytes that buffers hold: row-major, little-endian, booleans one byte each.
#pragma once
#include "mlir/IR/BuiltinAttributes.h"
#include "plan/plan.pb.h"
#include <string>

namespace cleave::codegen {

// DTYPE_INVALID for a type that no buffer can hold.
plan::DType dtypeOf(mlir::Type element);

// All elements; of a splat one element. Fails for attributes that carry no data.
mlir::FailureOr<std::string> elementData(mlir::ElementsAttr value);

// `value` as one element of the type; empty for a type that dtypeOf does not know.
std::string oneElement(mlir::Type element, double value);

} // namespace cleave::codegen
