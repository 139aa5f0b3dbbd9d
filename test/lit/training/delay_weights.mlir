// RUN: cleave-opt %s --delay-weights | FileCheck %s
// RUN: cleave-opt %s --delay-weights --lower-precision=type=bf16 | FileCheck %s --check-prefix=LOW
// RUN: cleave-opt %s --delay-weights --delay-weights 2>&1 | FileCheck %s --check-prefix=ONCE

// Every trainable parameter has a version that begins as it does and is one update old; a frozen one has none.
// CHECK:       onnx.param @w : tensor<4x4xf32> "parameter" {fill = 5.000000e-01 : f64, trainable = true}
// CHECK-NEXT:  onnx.param @"previous/w" : tensor<4x4xf32> "previous_parameter" {fill = 5.000000e-01 : f64, of = @w, trainable = false}
// CHECK-NOT:   "previous/frozen"

// Forward and backward pass read the old version, the update changes the new one, which becomes the old one as it was.
// CHECK-LABEL: func.func @accumulate
// CHECK-NOT:   onnx.read @w
// CHECK:       %[[OLD:.*]] = onnx.read @"previous/w" {place.at = #place.at<phase = forward>}
// CHECK:       onnx.Contract %arg0, %[[OLD]]
// CHECK:       onnx.read @frozen
// CHECK:       onnx.Contract %{{.*}}, %[[OLD]] {{.*}}place.at = #place.at<phase = backward
// CHECK-LABEL: func.func @final
// CHECK:       %[[OLD:.*]] = onnx.read @"previous/w"
// CHECK:       onnx.Contract %arg0, %[[OLD]]
// CHECK:       %[[NOW:.*]] = onnx.read @w
// CHECK:       onnx.Sub %[[NOW]]
// CHECK:       onnx.write @w
// CHECK:       %[[WAS:.*]] = onnx.read @w {place.at = #place.at<phase = update>}
// CHECK:       onnx.write @"previous/w", %[[WAS]] {place.at = #place.at<phase = update>}
// Evaluation is of the newest.
// CHECK-LABEL: func.func @evaluate
// CHECK-NOT:   previous
// CHECK:       onnx.read @w

// In 16 bits both versions are low: the old one is what the low new one was, and has no master.
// LOW:         onnx.param @w : tensor<4x4xbf16>
// LOW-NEXT:    onnx.param @"master/w" : tensor<4x4xf32>
// LOW-NEXT:    onnx.param @"previous/w" : tensor<4x4xbf16> "previous_parameter"
// LOW-NOT:     "master/previous
// LOW-LABEL:   func.func @final
// LOW:         %[[OLD:.*]] = onnx.read @"previous/w" {{.*}} : tensor<4x4xbf16>
// LOW:         onnx.Contract %{{.*}}, %[[OLD]]
// LOW:         %[[NOW:.*]] = onnx.read @"master/w"
// LOW:         %[[WAS:.*]] = onnx.read @w {{.*}} : tensor<4x4xbf16>
// LOW:         onnx.write @"previous/w", %[[WAS]]

// Versions have no versions.
// ONCE-NOT:    previous/previous
onnx.param @w : tensor<4x4xf32> "parameter" {fill = 0.5 : f64, trainable = true}
onnx.param @frozen : tensor<4x4xf32> "parameter" {fill = 0.5 : f64, trainable = false}
func.func @accumulate(%x: tensor<2x4xf32>) {
  %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4x4xf32>
  %h = onnx.Contract %x, %w {place.at = #place.at<phase = forward>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %f = onnx.read @frozen {place.at = #place.at<phase = forward>} : tensor<4x4xf32>
  %y = onnx.Contract %h, %f {place.at = #place.at<phase = forward>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %d = onnx.Contract %y, %w {place.at = #place.at<phase = backward>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 2, 1>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  return
}
func.func @final(%x: tensor<2x4xf32>) {
  %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4x4xf32>
  %h = onnx.Contract %x, %w {place.at = #place.at<phase = forward>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  %g = onnx.Contract %x, %h {place.at = #place.at<phase = backward>, lhs_indices = array<i64: 1, 0>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<4x4xf32>
  %now = onnx.read @w {place.at = #place.at<phase = update>} : tensor<4x4xf32>
  %new = onnx.Sub %now, %g {place.at = #place.at<phase = update>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  onnx.write @w, %new {place.at = #place.at<phase = update>} : tensor<4x4xf32>
  return
}
func.func @evaluate(%x: tensor<2x4xf32>) {
  %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4x4xf32>
  %h = onnx.Contract %x, %w {place.at = #place.at<phase = forward>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
  return
}
