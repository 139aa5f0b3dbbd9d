// RUN: cleave-opt %s --training="recipe={loss: {kind: mse}, optimizer: {kind: sgd, lr: 0.1}} microbatches=2" | FileCheck %s

// The whole phase: every op has a phase; functions have the names and results the later phases look for.
// CHECK-NOT:   func.func @model
// CHECK-LABEL: func.func @accumulate
// CHECK-LABEL: func.func @final
// CHECK-SAME:    -> (tensor<f32> {onnx.name = "loss"}, tensor<f32> {onnx.name = "grad_norm"})
// CHECK:         onnx.write @w
// CHECK-LABEL: func.func @evaluate
// CHECK-SAME:    -> (tensor<f32> {onnx.name = "loss"}, tensor<f32> {onnx.name = "loss_weight"})
onnx.param @w : tensor<4x5xf32> "parameter" {trainable = true}
func.func @model(%x: tensor<2x4xf32> {onnx.name = "x"}) -> (tensor<2x5xf32> {onnx.name = "y"}) {
  %w = onnx.read @w : tensor<4x5xf32>
  %h = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
  return %h : tensor<2x5xf32>
}
