// RUN: cleave-opt %s --place-channels-last | FileCheck %s
// RUN: cleave-opt %s --place-channels-last=weights=false | FileCheck %s --check-prefix=PLAIN

module {
  // CHECK-LABEL: func.func @grouped
  // CHECK:         %[[X:.*]] = onnx.Transpose %arg0 {perm = array<i64: 0, 2, 3, 1>, place.at = #place.at<phase = forward>}
  // CHECK:         %[[W:.*]] = onnx.Transpose %arg1 {perm = array<i64: 0, 2, 3, 1>, place.at = #place.at<phase = forward>} : (tensor<16x2x3x3xbf16>) -> tensor<16x3x3x2xbf16>
  // CHECK:         %[[Y:.*]] = onnx.Conv %[[X]], %[[W]] {channels_last, {{.*}}groups = 4 : i64, {{.*}}weight_channels_last} : (tensor<2x32x32x8xbf16>, tensor<16x3x3x2xbf16>) -> tensor<2x32x32x16xbf16>
  // CHECK:         onnx.Transpose %[[Y]] {perm = array<i64: 0, 3, 1, 2>, place.at = #place.at<phase = forward>}
  // PLAIN-LABEL: func.func @grouped
  // PLAIN:         onnx.Conv {{.*}}channels_last
  // PLAIN-NOT:     weight_channels_last
  // PLAIN-SAME:    (tensor<2x32x32x8xbf16>, tensor<16x2x3x3xbf16>) -> tensor<2x32x32x16xbf16>
  func.func @grouped(%x: tensor<2x8x32x32xbf16>, %w: tensor<16x2x3x3xbf16>) -> tensor<2x16x32x32xbf16> {
    %0 = onnx.Conv %x, %w {onnx.compute_channels_last, place.at = #place.at<phase = forward>, dilations = array<i64: 1, 1>, groups = 4 : i64, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x8x32x32xbf16>, tensor<16x2x3x3xbf16>) -> tensor<2x16x32x32xbf16>
    return %0 : tensor<2x16x32x32xbf16>
  }
  // CHECK-LABEL: func.func @gradients
  // CHECK:         onnx.ConvGradInput {{.*}}input_shape = array<i64: 2, 32, 32, 8>{{.*}} -> tensor<2x32x32x8xbf16>
  // CHECK:         onnx.ConvGradWeight {{.*}}weight_shape = array<i64: 16, 3, 3, 8>{{.*}} -> tensor<16x3x3x8xbf16>
  // CHECK:         perm = array<i64: 0, 3, 1, 2>} : (tensor<16x3x3x8xbf16>) -> tensor<16x8x3x3xbf16>
  func.func @gradients(%x: tensor<2x8x32x32xbf16>, %dy: tensor<2x16x32x32xbf16>, %w: tensor<16x8x3x3xbf16>) -> (tensor<2x8x32x32xbf16>, tensor<16x8x3x3xbf16>) {
    %0 = onnx.ConvGradInput %dy, %w {onnx.compute_channels_last, input_shape = array<i64: 2, 8, 32, 32>, dilations = array<i64: 1, 1>, groups = 1 : i64, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x16x32x32xbf16>, tensor<16x8x3x3xbf16>) -> tensor<2x8x32x32xbf16>
    %1 = onnx.ConvGradWeight %x, %dy {onnx.compute_channels_last, weight_shape = array<i64: 16, 8, 3, 3>, dilations = array<i64: 1, 1>, groups = 1 : i64, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<2x8x32x32xbf16>, tensor<2x16x32x32xbf16>) -> tensor<16x8x3x3xbf16>
    return %0, %1 : tensor<2x8x32x32xbf16>, tensor<16x8x3x3xbf16>
  }
  // CHECK-LABEL: func.func @movement
  // CHECK:         onnx.Concat {{.*}}axis = 3 : i64
  // CHECK:         onnx.Slice {{.*}}sizes = array<i64: 2, 5, 6, 3>, starts = array<i64: 0, 1, 0, 2>
  // CHECK:         onnx.Pad {{.*}}high = array<i64: 0, 1, 2, 0>
  // CHECK:         dist.all_gather {{.*}}dim = 3 : i64{{.*}} -> tensor<2x6x8x6xbf16>
  // CHECK:         onnx.AveragePool {{.*}}channels_last
  func.func @movement(%x: tensor<2x4x6x6xbf16>) -> tensor<2x6x5x7xbf16> {
    %0 = onnx.Concat %x, %x {onnx.compute_channels_last, axis = 1 : i64} : (tensor<2x4x6x6xbf16>, tensor<2x4x6x6xbf16>) -> tensor<2x8x6x6xbf16>
    %1 = onnx.Slice %0 {onnx.compute_channels_last, sizes = array<i64: 2, 3, 5, 6>, starts = array<i64: 0, 2, 1, 0>, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x8x6x6xbf16>) -> tensor<2x3x5x6xbf16>
    %2 = onnx.Pad %1 {onnx.compute_channels_last, high = array<i64: 0, 0, 1, 2>, interior = array<i64: 0, 0, 0, 0>, low = array<i64: 0, 0, 0, 0>, value = 0.0 : f64} : (tensor<2x3x5x6xbf16>) -> tensor<2x3x6x8xbf16>
    %3 = dist.all_gather %2 {onnx.compute_channels_last, axes = ["tp"], dim = 1 : i64} : (tensor<2x3x6x8xbf16>) -> tensor<2x6x6x8xbf16>
    %4 = onnx.AveragePool %3 {onnx.compute_channels_last, dilations = array<i64: 1, 1>, include_pad = false, kernel = array<i64: 2, 2>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, strides = array<i64: 1, 1>} : (tensor<2x6x6x8xbf16>) -> tensor<2x6x5x7xbf16>
    return %4 : tensor<2x6x5x7xbf16>
  }
  // Results of reductions and operands of broadcasts have the order that they had.
  // CHECK-LABEL: func.func @either
  // CHECK:         %[[S:.*]] = onnx.ReduceSum %{{.*}} {axes = array<i64: 0>} : (tensor<2x6x7x4xbf16>) -> tensor<6x7x4xbf16>
  // CHECK:         %[[T:.*]] = onnx.Transpose %[[S]] {perm = array<i64: 2, 0, 1>} : (tensor<6x7x4xbf16>) -> tensor<4x6x7xbf16>
  // CHECK:         %[[B:.*]] = onnx.Transpose %[[T]] {perm = array<i64: 1, 2, 0>} : (tensor<4x6x7xbf16>) -> tensor<6x7x4xbf16>
  // CHECK:         onnx.Broadcast %[[B]] {dims = array<i64: 1, 2, 3>, shape = array<i64: 2, 6, 7, 4>}
  // CHECK:         onnx.Constant dense<1.000000e+00> : tensor<2x6x7x4xbf16>
  func.func @either(%x: tensor<2x4x6x7xbf16>) -> (tensor<2x4x6x7xbf16>, tensor<2x4x6x7xbf16>) {
    %0 = onnx.ReduceSum %x {onnx.compute_channels_last, axes = array<i64: 0>} : (tensor<2x4x6x7xbf16>) -> tensor<4x6x7xbf16>
    %1 = onnx.Broadcast %0 {onnx.compute_channels_last, dims = array<i64: 1, 2, 3>, shape = array<i64: 2, 4, 6, 7>} : (tensor<4x6x7xbf16>) -> tensor<2x4x6x7xbf16>
    %2 = onnx.Constant {onnx.compute_channels_last} dense<1.0> : tensor<2x4x6x7xbf16>
    return %1, %2 : tensor<2x4x6x7xbf16>, tensor<2x4x6x7xbf16>
  }
}
