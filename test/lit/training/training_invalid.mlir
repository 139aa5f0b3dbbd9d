// Passes say which one has to run before, and which option is wrong.
// RUN: not cleave-opt %s --accumulate-gradients=microbatches=0 2>&1 | FileCheck %s --check-prefix=NUMBER
// RUN: not cleave-opt %s --lower-precision=type=f8 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: not cleave-opt %s --apply-optimizer="recipe={loss: {kind: mse}, optimizer: {kind: sgd, lr: 1}}" 2>&1 | FileCheck %s --check-prefix=FINAL
// RUN: not cleave-opt %s --average-weights="recipe={loss: {kind: mse}, ema: {decay: 0.5}}" 2>&1 | FileCheck %s --check-prefix=FINAL
// RUN: not cleave-opt %s --delay-weights 2>&1 | FileCheck %s --check-prefix=DELAY
// RUN: not cleave-opt %s --build-backward 2>&1 | FileCheck %s --check-prefix=LOSS

// NUMBER: microbatches must be 1 or more, is 0
// TYPE: lower-precision: type must be bf16 or f16, is 'f8'
// FINAL: there is no func @final with a body; AccumulateGradients makes it
// DELAY: there is no func @
// LOSS: has no result loss_sum; AttachLoss must run before
onnx.param @w : tensor<4xf32> "parameter" {trainable = true}
func.func @model(%x: tensor<4xf32> {onnx.name = "x"}) -> (tensor<4xf32> {onnx.name = "y"}) {
  %w = onnx.read @w : tensor<4xf32>
  %y = onnx.Mul %x, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
