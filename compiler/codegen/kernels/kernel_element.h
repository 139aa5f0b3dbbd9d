// The type that an element has inside kernels: integers are signless, floats of 8 bits are their codes.
//
//   elementInKernel(ui8) == i8    elementInKernel(f8E4M3FN) == i8    elementInKernel(bf16) == bf16
#pragma once
#include "dialects/onnx/formula.h"

namespace cleave::codegen {

inline mlir::Type elementInKernel(mlir::Type element) {
  if (!mlir::isa<mlir::IntegerType>(element) && !onnx::isEightBitFloat(element)) return element;
  return mlir::IntegerType::get(element.getContext(), element.getIntOrFloatBitWidth());
}

} // namespace cleave::codegen
