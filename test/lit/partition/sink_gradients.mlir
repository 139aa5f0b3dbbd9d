// RUN: cleave-opt %s --recompute | FileCheck %s

// The gradient of %h needs nothing of the segment and is four times as large as %dy, which has to stay for @dw anyway: it
// waits until %a and %h are there again.
// CHECK: [[A:%.+]] = onnx.Contract {{.*}}recomputed = 0
// CHECK-NEXT: [[H:%.+]] = onnx.Tanh [[A]] {{.*}}place.at = #place.at<phase = backward, recomputed = 0
// CHECK-NEXT: onnx.Contract [[H]], %arg1
// CHECK-NEXT: [[DH:%.+]] = onnx.Contract %arg1
// CHECK-NEXT: onnx.Mul [[DH]], [[A]]
module {
  onnx.param @up : tensor<4x16xf32> "parameter" {trainable = true}
  onnx.param @down : tensor<16x4xf32> "parameter" {trainable = true}
  func.func @final(%x: tensor<2x4xf32>, %dy: tensor<2x4xf32>) -> (tensor<2x4xf32>, tensor<2x16xf32>, tensor<16x4xf32>) {
    %up = onnx.read @up {place.at = #place.at<phase = forward>} : tensor<4x16xf32>
    %down = onnx.read @down {place.at = #place.at<phase = forward>} : tensor<16x4xf32>
    %a = onnx.Contract %x, %up {place.at = #place.at<phase = forward, segment = 0, recompute = true>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x16xf32>) -> tensor<2x16xf32>
    %h = onnx.Tanh %a {place.at = #place.at<phase = forward, segment = 0, recompute = true>} : (tensor<2x16xf32>) -> tensor<2x16xf32>
    %y = onnx.Contract %h, %down {place.at = #place.at<phase = forward, segment = 0>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x16xf32>, tensor<16x4xf32>) -> tensor<2x4xf32>
    %dh = onnx.Contract %dy, %down {place.at = #place.at<phase = backward>, lhs_indices = array<i64: 0, 2>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 1>} : (tensor<2x4xf32>, tensor<16x4xf32>) -> tensor<2x16xf32>
    %dw = onnx.Contract %h, %dy {place.at = #place.at<phase = backward>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 0, 2>, result_indices = array<i64: 1, 2>} : (tensor<2x16xf32>, tensor<2x4xf32>) -> tensor<16x4xf32>
    %da = onnx.Mul %dh, %a {place.at = #place.at<phase = backward>} : (tensor<2x16xf32>, tensor<2x16xf32>) -> tensor<2x16xf32>
    return %y, %da, %dw : tensor<2x4xf32>, tensor<2x16xf32>, tensor<16x4xf32>
  }
}
