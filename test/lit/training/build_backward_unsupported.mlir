// RUN: not cleave-opt %s --build-backward 2>&1 | FileCheck %s

// CHECK: onnx.Mod has no derivative, but trained parameters reach the loss through it
onnx.param @w : tensor<4xf32> "parameter" {trainable = true}
func.func @model() -> (tensor<f32> {onnx.name = "loss_sum"}) {
  %w = onnx.read @w : tensor<4xf32>
  %m = onnx.Mod %w, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %sum = onnx.ReduceSum %m {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %sum : tensor<f32>
}
