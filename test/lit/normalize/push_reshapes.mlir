// RUN: cleave-opt %s --push-reshapes --canonicalize | FileCheck %s

// Fused q, k, v of 4 heads of 16: the parameter and its bias become views with a dimension for the three, the heads and
// their width; batch and sequence, merged for a Gemm, stay apart.
// CHECK: onnx.param @w : tensor<64x3x4x16xf32> "parameter" {original_shape = array<i64: 64, 192>
// CHECK: onnx.param @b : tensor<3x4x16xf32> "parameter" {original_shape = array<i64: 192>
onnx.param @w : tensor<64x192xf32> "parameter" {trainable = true}
onnx.param @b : tensor<192xf32> "parameter" {trainable = true}
// CHECK-LABEL: func.func @model
func.func @model(%x: tensor<8x32x64xf32>) -> tensor<8x32x4x16xf32> {
  // CHECK: %[[W:.*]] = onnx.read @w : tensor<64x3x4x16xf32>
  // CHECK: onnx.Contract %arg0, %[[W]] {{.*}} -> tensor<8x32x3x4x16xf32>
  // CHECK: onnx.Add {{.*}} tensor<8x32x3x4x16xf32>
  // CHECK: onnx.Slice {{.*}}starts = array<i64: 0, 0, 1, 0, 0>
  // CHECK-NEXT: onnx.Reshape {{.*}} -> tensor<8x32x4x16xf32>
  // CHECK-NEXT: return
  %w = onnx.read @w : tensor<64x192xf32>
  %b = onnx.read @b : tensor<192xf32>
  %flat = onnx.Reshape %x {shape = array<i64: 256, 64>} : (tensor<8x32x64xf32>) -> tensor<256x64xf32>
  %y = onnx.Contract %flat, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<256x64xf32>, tensor<64x192xf32>) -> tensor<256x192xf32>
  %bias = onnx.Broadcast %b {dims = array<i64: 1>, shape = array<i64: 256, 192>} : (tensor<192xf32>) -> tensor<256x192xf32>
  %z = onnx.Add %y, %bias : (tensor<256x192xf32>, tensor<256x192xf32>) -> tensor<256x192xf32>
  %qkv = onnx.Reshape %z {shape = array<i64: 8, 32, 3, 64>} : (tensor<256x192xf32>) -> tensor<8x32x3x64xf32>
  %k = onnx.Slice %qkv {starts = array<i64: 0, 0, 1, 0>, sizes = array<i64: 8, 32, 1, 64>, steps = array<i64: 1, 1, 1, 1>} : (tensor<8x32x3x64xf32>) -> tensor<8x32x1x64xf32>
  %heads = onnx.Reshape %k {shape = array<i64: 8, 32, 4, 16>} : (tensor<8x32x1x64xf32>) -> tensor<8x32x4x16xf32>
  return %heads : tensor<8x32x4x16xf32>
}
