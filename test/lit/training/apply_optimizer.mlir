// RUN: cleave-opt %s --apply-optimizer="recipe={loss: {kind: mse}, optimizer: {kind: adamw, lr: 0.1, weight_decay: 0.5, no_decay: ['*.bias']}}" | FileCheck %s
// RUN: cleave-opt %s --apply-optimizer="recipe={loss: {kind: mse}, optimizer: {kind: muon, lr: 0.1}}" | FileCheck %s --check-prefix=MUON

// State is named after rule and parameter; the host gives learning rate and bias corrections.
// CHECK-DAG:   onnx.param @"exp_avg/fc.weight" : tensor<4xf32> "optimizer_state" {fill = 0.000000e+00 : f64, of = @fc.weight, trainable = false}
// CHECK-DAG:   onnx.param @"exp_avg_sq/fc.bias" : tensor<3xf32> "optimizer_state"
// CHECK-LABEL: func.func @final(
// CHECK-SAME:    onnx.host = "learning_rate"
// CHECK-SAME:    onnx.base = {{[0-9.e+-]+}} : f64, onnx.host = "one_minus_power"
// CHECK-SAME:    -> (tensor<f32> {onnx.name = "loss"})
// The weight decays, the bias does not: one update each, and the learning rate times the decay only once.
// CHECK-COUNT-1: dense<5.000000e-01>
// CHECK-NOT:     dense<5.000000e-01>
// CHECK-DAG:     onnx.write @"exp_avg/fc.weight"
// CHECK-DAG:     onnx.write @"exp_avg_sq/fc.weight"
// CHECK-DAG:     onnx.write @fc.weight
// CHECK-DAG:     onnx.write @fc.bias
// What no product uses learns by AdamW.
// MUON: onnx.param @"exp_avg/fc.weight"
// MUON-NOT: momentum_buffer
onnx.param @fc.weight : tensor<4xf32> "parameter" {trainable = true}
onnx.param @fc.bias : tensor<3xf32> "parameter" {trainable = true}
func.func @final(%a: tensor<4xf32> {onnx.name = "a"}, %b: tensor<3xf32> {onnx.name = "b"}, %loss: tensor<f32> {onnx.name = "l"})
    -> (tensor<f32> {onnx.name = "loss"}, tensor<4xf32> {onnx.gradient_of = @fc.weight}, tensor<3xf32> {onnx.gradient_of = @fc.bias}) {
  return %loss, %a, %b : tensor<f32>, tensor<4xf32>, tensor<3xf32>
}
