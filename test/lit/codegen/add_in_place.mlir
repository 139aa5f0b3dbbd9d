// RUN: cleave-opt --split-input-file --add-in-place %s | FileCheck %s
// A product that is added to what a param holds, and stored there, adds by itself.

onnx.param @sum : tensor<8x3x2xf32> "accumulator" {trainable = false, fill = 0.0}
func.func @accumulate(%x: tensor<4x8xf32>, %dy: tensor<4x6xf32>) {
  %g = onnx.Contract %x, %dy {lhs_indices = array<i64: 2, 0>, rhs_indices = array<i64: 2, 1>, result_indices = array<i64: 0, 1>, place.at = #place.at<phase = backward>} : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  %r = onnx.Reshape %g {shape = array<i64: 8, 3, 2>} : (tensor<8x6xf32>) -> tensor<8x3x2xf32>
  %s = onnx.read @sum : tensor<8x3x2xf32>
  %n = onnx.Add %s, %r : (tensor<8x3x2xf32>, tensor<8x3x2xf32>) -> tensor<8x3x2xf32>
  onnx.write @sum, %n : tensor<8x3x2xf32>
  return
}
// CHECK-LABEL: func.func @accumulate
// CHECK: %[[SUM:.*]] = onnx.read @sum
// CHECK: %[[Y:.*]] = plan.contract %arg0, %arg1, %[[SUM]] {
// CHECK-NOT: onnx.Add
// CHECK: %[[N:.*]] = onnx.Reshape %[[Y]]
// CHECK: onnx.write @sum, %[[N]]

// -----

// What somebody else reads, too, stays apart.
onnx.param @sum : tensor<8x6xf32> "accumulator" {trainable = false, fill = 0.0}
func.func @gradientIsReturned(%x: tensor<4x8xf32>, %dy: tensor<4x6xf32>) -> tensor<8x6xf32> {
  %g = onnx.Contract %x, %dy {lhs_indices = array<i64: 2, 0>, rhs_indices = array<i64: 2, 1>, result_indices = array<i64: 0, 1>, place.at = #place.at<phase = backward>} : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  %s = onnx.read @sum : tensor<8x6xf32>
  %n = onnx.Add %s, %g : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
  onnx.write @sum, %n : tensor<8x6xf32>
  return %g : tensor<8x6xf32>
}
// CHECK-LABEL: func.func @gradientIsReturned
// CHECK: onnx.Add

// -----

onnx.param @sum : tensor<8x6xf32> "accumulator" {trainable = false, fill = 0.0}
func.func @sumIsReadTwice(%x: tensor<4x8xf32>, %dy: tensor<4x6xf32>) -> tensor<8x6xf32> {
  %g = onnx.Contract %x, %dy {lhs_indices = array<i64: 2, 0>, rhs_indices = array<i64: 2, 1>, result_indices = array<i64: 0, 1>, place.at = #place.at<phase = backward>} : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  %s = onnx.read @sum : tensor<8x6xf32>
  %n = onnx.Add %s, %g : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
  onnx.write @sum, %n : tensor<8x6xf32>
  %before = onnx.read @sum : tensor<8x6xf32>
  return %before : tensor<8x6xf32>
}
// CHECK-LABEL: func.func @sumIsReadTwice
// CHECK: onnx.Add

// -----

// Terms of one gradient, of a weight that two products read.
func.func @twoTerms(%x: tensor<4x8xf32>, %dy: tensor<4x6xf32>, %z: tensor<2x8xf32>, %dz: tensor<2x6xf32>) -> tensor<8x6xf32> {
  %g = onnx.Contract %x, %dy {lhs_indices = array<i64: 2, 0>, rhs_indices = array<i64: 2, 1>, result_indices = array<i64: 0, 1>, place.at = #place.at<phase = backward>} : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  %h = onnx.Contract %z, %dz {lhs_indices = array<i64: 2, 0>, rhs_indices = array<i64: 2, 1>, result_indices = array<i64: 0, 1>, place.at = #place.at<phase = backward>} : (tensor<2x8xf32>, tensor<2x6xf32>) -> tensor<8x6xf32>
  %n = onnx.Add %g, %h {place.at = #place.at<phase = backward>} : (tensor<8x6xf32>, tensor<8x6xf32>) -> tensor<8x6xf32>
  return %n : tensor<8x6xf32>
}
// CHECK-LABEL: func.func @twoTerms
// CHECK: %[[G:.*]] = onnx.Contract %arg0, %arg1
// CHECK: %[[Y:.*]] = plan.contract %arg2, %arg3, %[[G]] {
// CHECK: return %[[Y]]
