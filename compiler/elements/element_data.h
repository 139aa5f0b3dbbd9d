// Element types and tensor data, from the IR to the plan's: row-major, little-endian, booleans one byte each. Constant
// folding, the reference graph and code generation all read constants through this.
//
//   dtypeOf(f32) == plan::F32           elementTypeOf(context, plan::U8) == ui8
//   elementData(dense<[1, 2]> : tensor<2xi32>)  ->  01 00 00 00 02 00 00 00
//   elementData(dense<true> : tensor<8xi1>)     ->  01 (a splat is one element)
#pragma once
#include "mlir/IR/BuiltinAttributes.h"
#include "plan/plan.pb.h"
#include <string>

namespace cleave {

// DTYPE_INVALID for a type that no buffer can hold.
plan::DType dtypeOf(mlir::Type element);
// Null for DTYPE_INVALID.
mlir::Type elementTypeOf(mlir::MLIRContext *context, plan::DType dtype);

// All elements; of a splat one element. Fails for attributes that carry no data.
mlir::FailureOr<std::string> elementData(mlir::ElementsAttr value);

// `value` as one element of the type; empty for a type that dtypeOf does not know.
std::string oneElement(mlir::Type element, double value);

} // namespace cleave
