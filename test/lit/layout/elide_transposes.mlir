// RUN: cleave-opt %s --choose-channels-last --place-channels-last --elide-transposes | FileCheck %s

module {
  // The image and the weights are transposed, and a weight again for the backward pass; what is between stays as it lies.
  // CHECK-LABEL: func.func @two
  // CHECK-COUNT-2: onnx.Transpose
  // CHECK:         onnx.Conv
  // CHECK-NOT:     onnx.Transpose
  // CHECK:         onnx.Relu
  // CHECK-NOT:     onnx.Transpose
  // CHECK:         onnx.Reshape %arg2 {place.at = #place.at<phase = forward>, shape = array<i64: 16, 1, 1, 16>}
  // CHECK-NOT:     onnx.Transpose
  // CHECK:         onnx.Conv
  // CHECK-NOT:     onnx.Transpose
  // CHECK:         onnx.ReduceSum
  // CHECK:         %[[W:.*]] = onnx.Transpose %arg1 {{.*}}place.at = #place.at<phase = backward
  // CHECK:         onnx.ConvGradInput %{{.*}}, %[[W]]
  // CHECK-NOT:     onnx.Transpose
  // CHECK:         return
  func.func @two(%x: tensor<8x8x32x32xbf16>, %w: tensor<16x8x3x3xbf16>, %v: tensor<16x16x1x1xbf16>) -> (tensor<16xbf16>, tensor<8xbf16>) {
    %0 = onnx.Conv %x, %w {place.at = #place.at<phase = forward>, dilations = array<i64: 1, 1>, groups = 1 : i64, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<8x8x32x32xbf16>, tensor<16x8x3x3xbf16>) -> tensor<8x16x32x32xbf16>
    %1 = onnx.Relu %0 {place.at = #place.at<phase = forward>} : (tensor<8x16x32x32xbf16>) -> tensor<8x16x32x32xbf16>
    %2 = onnx.Conv %1, %v {place.at = #place.at<phase = forward>, dilations = array<i64: 1, 1>, groups = 1 : i64, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<8x16x32x32xbf16>, tensor<16x16x1x1xbf16>) -> tensor<8x16x32x32xbf16>
    %3 = onnx.ReduceSum %2 {axes = array<i64: 0, 2, 3>, place.at = #place.at<phase = forward>} : (tensor<8x16x32x32xbf16>) -> tensor<16xbf16>
    %4 = onnx.ConvGradInput %2, %w {place.at = #place.at<phase = backward>, input_shape = array<i64: 8, 8, 32, 32>, dilations = array<i64: 1, 1>, groups = 1 : i64, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<8x16x32x32xbf16>, tensor<16x8x3x3xbf16>) -> tensor<8x8x32x32xbf16>
    %5 = onnx.ReduceSum %4 {axes = array<i64: 0, 2, 3>, place.at = #place.at<phase = backward>} : (tensor<8x8x32x32xbf16>) -> tensor<8xbf16>
    return %3, %5 : tensor<16xbf16>, tensor<8xbf16>
  }
  // Functions without convolutions keep their transposes.
  // CHECK-LABEL: func.func @others
  // CHECK-COUNT-2: onnx.Transpose
  func.func @others(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
    %0 = onnx.Transpose %x {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
    %1 = onnx.Transpose %0 {perm = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
    return %1 : tensor<2x3xf32>
  }
}
