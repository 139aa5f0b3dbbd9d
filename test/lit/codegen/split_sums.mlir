// RUN: cleave-opt %s --split-sums | FileCheck %s

// 30 terms are two sums of 15, in the order of the terms, of the phase of the sum.
// CHECK-LABEL: func.func @thirty
// CHECK: %[[A:.*]] = onnx.Sum %arg0, %arg0, %arg1, %arg1, %arg1, %arg1, %arg1, %arg1, %arg1, %arg1, %arg1, %arg1, %arg1, %arg1, %arg1 {place.at = #place.at<phase = update>}
// CHECK: %[[B:.*]] = onnx.Sum %arg1, {{.*}}, %arg0 {place.at = #place.at<phase = update>}
// CHECK: %[[S:.*]] = onnx.Sum %[[A]], %[[B]] {place.at = #place.at<phase = update>} : (tensor<f32>, tensor<f32>) -> tensor<f32>
// CHECK: return %[[S]]
func.func @thirty(%x: tensor<f32>, %y: tensor<f32>) -> tensor<f32> {
  %0 = onnx.Sum %x, %x, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %y, %x {place.at = #place.at<phase = update>} : (tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>, tensor<f32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// 27 terms and a result are what a kernel has buffers for: left alone.
// CHECK-LABEL: func.func @kernel
// CHECK-NEXT: onnx.Sum
// CHECK-NEXT: return
func.func @kernel(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = onnx.Sum %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x, %x : (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
