// RUN: cleave-opt %s --build-backward | FileCheck %s
// RUN: cleave-opt %s --build-backward="microbatches=2" | FileCheck %s --check-prefix=TWO

// A matrix product's gradient exchanges index roles, without transposes. %h is used twice: its two contributions are
// summed. The frozen parameter and the input get no gradient. StopGradient is gone.
// CHECK-LABEL: func.func @model
// CHECK-SAME:    tensor<4x5xf32> {onnx.gradient_of = @w})
// CHECK-DAG:     %[[W:.*]] = onnx.read @w
// CHECK-DAG:     %[[F:.*]] = onnx.read @frozen
// CHECK:         %[[H:.*]] = onnx.Contract %[[X:.*]], %[[W]]
// CHECK:         %[[E:.*]] = onnx.Exp %[[H]]
// CHECK-NOT:     onnx.StopGradient
// CHECK:         onnx.Mul %[[E]], %[[H]]
// The known weight is in the seed.
// CHECK:         %[[SEED:.*]] = onnx.Constant {place.at = #place.at<phase = backward>} dense<1.000000e-01> : tensor<f32>
// CHECK:         %[[DY:.*]] = onnx.Broadcast %[[SEED]]
// CHECK:         %[[SUM:.*]] = onnx.Sum {{.*}} {place.at = #place.at<phase = backward>}
// CHECK:         %[[DW:.*]] = onnx.Contract %[[X]], %[[SUM]] {lhs_indices = array<i64: 0, 1>, place.at = #place.at<phase = backward>, result_indices = array<i64: 1, 2>, rhs_indices = array<i64: 0, 2>}
// CHECK-NOT:     onnx.Contract
// CHECK:         return {{.*}}, {{.*}}, %[[DW]]
// TWO:           onnx.Constant {place.at = #place.at<phase = backward>} dense<5.000000e-02> : tensor<f32>
onnx.param @w : tensor<4x5xf32> "parameter" {trainable = true}
onnx.param @frozen : tensor<2x5xf32> "parameter" {trainable = false}
func.func @model(%x: tensor<2x4xf32> {onnx.name = "x"}) -> (tensor<f32> {onnx.name = "loss_sum"}, tensor<f32> {onnx.name = "loss_weight"}) {
  %w = onnx.read @w : tensor<4x5xf32>
  %frozen = onnx.read @frozen : tensor<2x5xf32>
  %h = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x5xf32>) -> tensor<2x5xf32>
  %e = onnx.Exp %h : (tensor<2x5xf32>) -> tensor<2x5xf32>
  %stopped = onnx.StopGradient %h : (tensor<2x5xf32>) -> tensor<2x5xf32>
  %m = onnx.Mul %e, %stopped : (tensor<2x5xf32>, tensor<2x5xf32>) -> tensor<2x5xf32>
  %a = onnx.Add %h, %m : (tensor<2x5xf32>, tensor<2x5xf32>) -> tensor<2x5xf32>
  %y = onnx.Mul %a, %frozen : (tensor<2x5xf32>, tensor<2x5xf32>) -> tensor<2x5xf32>
  %sum = onnx.ReduceSum %y {axes = array<i64: 0, 1>} : (tensor<2x5xf32>) -> tensor<f32>
  %weight = onnx.Constant dense<10.0> : tensor<f32>
  return %sum, %weight : tensor<f32>, tensor<f32>
}
