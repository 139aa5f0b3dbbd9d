// RUN: cleave-opt %s --choose-channels-last | FileCheck %s
// RUN: cleave-opt %s --choose-channels-last=of=float | FileCheck %s --check-prefix=FLOAT

module {
  // Two convolutions with what is between them: one group.
  // CHECK-LABEL: func.func @residual
  // CHECK:         onnx.Conv {{.*}}onnx.compute_channels_last
  // CHECK:         onnx.ReduceSum {{.*}}onnx.compute_channels_last
  // CHECK:         onnx.Broadcast {{.*}}onnx.compute_channels_last
  // CHECK:         onnx.Sub {{.*}}onnx.compute_channels_last
  // CHECK:         onnx.Relu {{.*}}onnx.compute_channels_last
  // CHECK:         onnx.MaxPool {{.*}}onnx.compute_channels_last
  // CHECK:         onnx.Conv {{.*}}onnx.compute_channels_last
  // CHECK:         onnx.Add {{.*}}onnx.compute_channels_last
  func.func @residual(%x: tensor<8x16x32x32xbf16>, %w: tensor<16x16x3x3xbf16>) -> tensor<16xbf16> {
    %0 = onnx.Conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<8x16x32x32xbf16>, tensor<16x16x3x3xbf16>) -> tensor<8x16x32x32xbf16>
    %1 = onnx.ReduceSum %0 {axes = array<i64: 0, 2, 3>} : (tensor<8x16x32x32xbf16>) -> tensor<16xbf16>
    %2 = onnx.Broadcast %1 {dims = array<i64: 1>, shape = array<i64: 8, 16, 32, 32>} : (tensor<16xbf16>) -> tensor<8x16x32x32xbf16>
    %3 = onnx.Sub %0, %2 : (tensor<8x16x32x32xbf16>, tensor<8x16x32x32xbf16>) -> tensor<8x16x32x32xbf16>
    %4 = onnx.Relu %3 : (tensor<8x16x32x32xbf16>) -> tensor<8x16x32x32xbf16>
    %5 = onnx.MaxPool %4 {dilations = array<i64: 1, 1>, kernel = array<i64: 3, 3>, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<8x16x32x32xbf16>) -> tensor<8x16x32x32xbf16>
    %6 = onnx.Conv %5, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<8x16x32x32xbf16>, tensor<16x16x3x3xbf16>) -> tensor<8x16x32x32xbf16>
    %7 = onnx.Add %6, %4 : (tensor<8x16x32x32xbf16>, tensor<8x16x32x32xbf16>) -> tensor<8x16x32x32xbf16>
    %8 = onnx.ReduceSum %7 {axes = array<i64: 0, 2, 3>} : (tensor<8x16x32x32xbf16>) -> tensor<16xbf16>
    return %8 : tensor<16xbf16>
  }
  // The narrow image is transposed, not the wide one; fp32 stays as it is on a GPU.
  // CHECK-LABEL: func.func @border
  // CHECK:         onnx.Cast {{[^c]*}}{to = bf16}
  // CHECK:         onnx.Conv {{.*}}onnx.compute_channels_last
  // CHECK-LABEL: func.func @wide
  // CHECK-NOT:     channels_last
  // FLOAT-LABEL: func.func @wide
  // FLOAT:         onnx.Conv {{.*}}onnx.compute_channels_last
  func.func @border(%x: tensor<8x3x32x32xf32>, %w: tensor<16x3x3x3xbf16>) -> tensor<16xbf16> {
    %0 = onnx.Cast %x {to = bf16} : (tensor<8x3x32x32xf32>) -> tensor<8x3x32x32xbf16>
    %1 = onnx.Conv %0, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<8x3x32x32xbf16>, tensor<16x3x3x3xbf16>) -> tensor<8x16x32x32xbf16>
    %2 = onnx.ReduceSum %1 {axes = array<i64: 0, 2, 3>} : (tensor<8x16x32x32xbf16>) -> tensor<16xbf16>
    return %2 : tensor<16xbf16>
  }
  func.func @wide(%x: tensor<8x3x32x32xf32>, %w: tensor<16x3x3x3xf32>) -> tensor<16xf32> {
    %1 = onnx.Conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<8x3x32x32xf32>, tensor<16x3x3x3xf32>) -> tensor<8x16x32x32xf32>
    %2 = onnx.ReduceSum %1 {axes = array<i64: 0, 2, 3>} : (tensor<8x16x32x32xf32>) -> tensor<16xf32>
    return %2 : tensor<16xf32>
  }
  // Its borders cost more than it saves: a sum with tensors that others have made.
  // CHECK-LABEL: func.func @costly
  // CHECK-NOT:     channels_last
  func.func @costly(%x: tensor<8x16x32x32xbf16>, %w: tensor<16x16x3x3xbf16>, %a: tensor<8x16x32x32xbf16>, %b: tensor<8x16x32x32xbf16>) -> tensor<8x16x32x32xbf16> {
    %0 = onnx.Conv %x, %w {dilations = array<i64: 1, 1>, groups = 1 : i64, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, strides = array<i64: 1, 1>} : (tensor<8x16x32x32xbf16>, tensor<16x16x3x3xbf16>) -> tensor<8x16x32x32xbf16>
    %1 = onnx.Sum %0, %a, %b : (tensor<8x16x32x32xbf16>, tensor<8x16x32x32xbf16>, tensor<8x16x32x32xbf16>) -> tensor<8x16x32x32xbf16>
    return %1 : tensor<8x16x32x32xbf16>
  }
}
