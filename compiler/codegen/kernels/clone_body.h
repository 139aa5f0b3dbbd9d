// The scalar code of a linalg op, written once more where its operands are elements: what the loops of a CPU kernel and
// the threads of a GPU's have inside.
//
//   ^bb0(%x: f32, %y: f32): %0 = arith.mulf %x, %y ...      -> arith.mulf %element0, %element1 fastmath<contract>
#pragma once
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/IRMapping.h"

namespace cleave::codegen {

// Marks a kernel whose operations are rounded one by one, without `contract`.
inline constexpr llvm::StringLiteral roundsEachAttr = "rounds_each";

// `captured`: values from outside of the body. `indexOf`: the op's index along a loop of it, i64. Gives what is
// yielded.
mlir::Value cloneBody(mlir::linalg::GenericOp op, const mlir::IRMapping &captured, mlir::ValueRange arguments,
                      mlir::OpBuilder &builder, llvm::function_ref<mlir::Value(int64_t loop)> indexOf);

} // namespace cleave::codegen
