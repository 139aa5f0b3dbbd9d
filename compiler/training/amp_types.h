// Which values torch.amp would have in 16 bits. Its rules are PyTorch's type promotion, and a list of functions that
// give fp32 ("CUDA Ops that can autocast to float32" in PyTorch's documentation of torch.amp):
//
//   y = Cast(Conv) : bf16 -> f32     16 bits: a product's result, widened to be computed with
//   n = BatchNormalization(y)        16 bits: it has its operand's type (onnx.keeps_type)
//   s = Add(n, x)                    16 bits, if x is; not of an embedding's residual stream, which is fp32
//   l = LayerNormalization(s)        fp32: it reduces, and its scale is fp32
#pragma once
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"

namespace cleave::training {

class AmpTypes {
public:
  // `low`: the type of 16 bits. Asked before the operations that values come from change.
  explicit AmpTypes(mlir::FloatType low) : low(low) {}

  // Is it made of values in 16 bits, and of nothing in fp32 but numbers?
  bool isLow(mlir::Value value) { return typeOf(value) == Low; }

private:
  enum AmpType { Neutral, Low, Full }; // Neutral: masks and numbers, which decide nothing
  AmpType typeOf(mlir::Value value);
  AmpType find(mlir::Value value);

  mlir::FloatType low;
  llvm::DenseMap<mlir::Value, AmpType> known;
};

} // namespace cleave::training
