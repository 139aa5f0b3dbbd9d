// RUN: cleave-opt %s --lower-precision=type=bf16 | FileCheck %s

// A residual stream of convolutions is in 16 bits, as under torch.amp: batch norms have their operand's type, so the
// rectified sum that the next convolution and the next sum read is rounded for both.
// CHECK-LABEL: func.func @blocks
// CHECK: %[[RELU:.*]] = onnx.Relu
// CHECK-NEXT: %[[LOW:.*]] = onnx.Cast %[[RELU]] {{.*}}to = bf16
// CHECK-NEXT: %[[WIDE:.*]] = onnx.Cast %[[LOW]] {{.*}}to = f32
// CHECK: onnx.Conv %[[LOW]],
// CHECK: onnx.Add %{{.*}}, %[[WIDE]]
func.func @blocks(%x: tensor<2x4x8x8xf32>, %w: tensor<4x4x1x1xf32>, %scale: tensor<4xf32>) -> tensor<2x4x8x8xf32> {
  %s = onnx.Broadcast %scale {dims = array<i64: 1>, shape = array<i64: 2, 4, 8, 8>, onnx.keeps_type} : (tensor<4xf32>) -> tensor<2x4x8x8xf32>
  %c0 = onnx.Conv %x, %w {strides = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x4x8x8xf32>, tensor<4x4x1x1xf32>) -> tensor<2x4x8x8xf32>
  %n0 = onnx.Mul %c0, %s : (tensor<2x4x8x8xf32>, tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %a0 = onnx.Add %n0, %c0 : (tensor<2x4x8x8xf32>, tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %r0 = onnx.Relu %a0 : (tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %c1 = onnx.Conv %r0, %w {strides = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x4x8x8xf32>, tensor<4x4x1x1xf32>) -> tensor<2x4x8x8xf32>
  %n1 = onnx.Mul %c1, %s : (tensor<2x4x8x8xf32>, tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %a1 = onnx.Add %n1, %r0 : (tensor<2x4x8x8xf32>, tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  return %a1 : tensor<2x4x8x8xf32>
}

// A pool gives 16 bits for 16 bits.
// CHECK-LABEL: func.func @pool
// CHECK: %[[RELU:.*]] = onnx.Relu
// CHECK-NEXT: %[[LOW:.*]] = onnx.Cast %[[RELU]] {{.*}}to = bf16
// CHECK: onnx.MaxPool %[[LOW]] {{.*}} -> tensor<2x4x4x4xbf16>
func.func @pool(%x: tensor<2x4x8x8xf32>, %w: tensor<4x4x1x1xf32>) -> tensor<2x4x4x4xf32> {
  %c = onnx.Conv %x, %w {strides = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<2x4x8x8xf32>, tensor<4x4x1x1xf32>) -> tensor<2x4x8x8xf32>
  %r = onnx.Relu %c : (tensor<2x4x8x8xf32>) -> tensor<2x4x8x8xf32>
  %p = onnx.MaxPool %r {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, dilations = array<i64: 1, 1>} : (tensor<2x4x8x8xf32>) -> tensor<2x4x4x4xf32>
  return %p : tensor<2x4x4x4xf32>
}

// An embedding's residual stream is fp32, and so are its sums with products.
// CHECK-LABEL: func.func @embedded
// CHECK: %[[A:.*]] = onnx.Add %arg0,
// CHECK: %[[P:.*]] = onnx.Contract
// CHECK: %[[W:.*]] = onnx.Cast %[[P]] {{.*}}to = f32
// CHECK: onnx.Add %[[A]], %[[W]]
func.func @embedded(%x: tensor<4x8xf32>, %w: tensor<8x8xf32>) -> tensor<4x8xf32> {
  %p = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %a = onnx.Add %x, %p : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %q = onnx.Contract %a, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %b = onnx.Add %a, %q : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %t = onnx.Tanh %b : (tensor<4x8xf32>) -> tensor<4x8xf32>
  return %t : tensor<4x8xf32>
}
