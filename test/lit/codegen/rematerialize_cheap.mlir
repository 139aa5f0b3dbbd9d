// RUN: cleave-opt %s --rematerialize-cheap | FileCheck %s

// erf is computed again from %arg0, which is there anyway; the product's operand is kept as it is.
// CHECK-LABEL: func.func @gelu
// CHECK: %[[E:.*]] = onnx.Erf %arg0 {place.at = #place.at<phase = forward>}
// CHECK: %[[C:.*]] = onnx.Contract
// CHECK: %[[AGAIN:.*]] = onnx.Erf %arg0 {place.at = #place.at<phase = backward>}
// CHECK: onnx.Mul %[[C]], %[[AGAIN]] {place.at = #place.at<phase = backward>}
func.func @gelu(%x: tensor<256x256xf32>, %w: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %e = onnx.Erf %x {place.at = #place.at<phase = forward>} : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %c = onnx.Contract %e, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %g = onnx.Mul %c, %e {place.at = #place.at<phase = backward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  return %g : tensor<256x256xf32>
}

// The backward product needs %e in memory: nothing to gain.
// CHECK-LABEL: func.func @kept
// CHECK-COUNT-1: onnx.Erf
// CHECK-NOT: onnx.Erf
func.func @kept(%x: tensor<256x256xf32>, %w: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<256x256xf32>) {
  %e = onnx.Erf %x {place.at = #place.at<phase = forward>} : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %g = onnx.Mul %w, %e {place.at = #place.at<phase = backward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %d = onnx.Contract %e, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = backward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  return %g, %d : tensor<256x256xf32>, tensor<256x256xf32>
}

// In another shape, which is the same memory.
// CHECK-LABEL: func.func @kept_reshaped
// CHECK-COUNT-1: onnx.Erf
// CHECK-NOT: onnx.Erf
func.func @kept_reshaped(%x: tensor<256x16x16xf32>, %w: tensor<256x16x16xf32>) -> (tensor<256x16x16xf32>, tensor<256x256xf32>) {
  %e = onnx.Erf %x {place.at = #place.at<phase = forward>} : (tensor<256x16x16xf32>) -> tensor<256x16x16xf32>
  %f = onnx.Reshape %e {shape = array<i64: 256, 256>, place.at = #place.at<phase = forward>} : (tensor<256x16x16xf32>) -> tensor<256x256xf32>
  %g = onnx.Mul %w, %e {place.at = #place.at<phase = backward>} : (tensor<256x16x16xf32>, tensor<256x16x16xf32>) -> tensor<256x16x16xf32>
  %d = onnx.Contract %f, %f {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = backward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  return %g, %d : tensor<256x16x16xf32>, tensor<256x256xf32>
}

// A residual stream: the next layer's sum reads %s after a product, so it stands in memory anyway; made again from %x
// and %y, %y would be kept in its place and both be read.
// CHECK-LABEL: func.func @residual
// CHECK: %[[S:.*]] = onnx.Add %arg0
// CHECK: onnx.Mul %{{.*}}, %[[S]] {place.at = #place.at<phase = backward>}
func.func @residual(%x: tensor<256x256xf32>, %w: tensor<256x256xf32>, %d: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<256x256xf32>) {
  %y = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %s = onnx.Add %x, %y {place.at = #place.at<phase = forward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %e = onnx.Exp %s {place.at = #place.at<phase = forward>} : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %z = onnx.Contract %e, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %t = onnx.Add %s, %z {place.at = #place.at<phase = forward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %g = onnx.Mul %d, %s {place.at = #place.at<phase = backward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  return %t, %g : tensor<256x256xf32>, tensor<256x256xf32>
}

// Nor where the products' results are there anyway: %s2 would be made of %s1, and that of what comes before it.
// CHECK-LABEL: func.func @stream
// CHECK: %[[S1:.*]] = onnx.Add %arg0
// CHECK: %[[S2:.*]] = onnx.Add %[[S1]]
// CHECK: onnx.Mul %{{.*}}, %[[S2]] {place.at = #place.at<phase = backward>}
func.func @stream(%x: tensor<256x256xf32>, %w: tensor<256x256xbf16>, %d: tensor<256x256xf32>) -> (tensor<256x256xf32>, tensor<256x256xf32>, tensor<256x256xf32>, tensor<256x256xbf16>) {
  %y1 = onnx.Contract %w, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>} : (tensor<256x256xbf16>, tensor<256x256xbf16>) -> tensor<256x256xbf16>
  %l1 = onnx.Cast %y1 {to = f32, place.at = #place.at<phase = forward>} : (tensor<256x256xbf16>) -> tensor<256x256xf32>
  %s1 = onnx.Add %x, %l1 {place.at = #place.at<phase = forward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %e1 = onnx.Cast %s1 {to = bf16, place.at = #place.at<phase = forward>} : (tensor<256x256xf32>) -> tensor<256x256xbf16>
  %y2 = onnx.Contract %e1, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>} : (tensor<256x256xbf16>, tensor<256x256xbf16>) -> tensor<256x256xbf16>
  %l2 = onnx.Cast %y2 {to = f32, place.at = #place.at<phase = forward>} : (tensor<256x256xbf16>) -> tensor<256x256xf32>
  %s2 = onnx.Add %s1, %l2 {place.at = #place.at<phase = forward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %e2 = onnx.Cast %s2 {to = bf16, place.at = #place.at<phase = forward>} : (tensor<256x256xf32>) -> tensor<256x256xbf16>
  %y3 = onnx.Contract %e2, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>} : (tensor<256x256xbf16>, tensor<256x256xbf16>) -> tensor<256x256xbf16>
  %l3 = onnx.Cast %y3 {to = f32, place.at = #place.at<phase = forward>} : (tensor<256x256xbf16>) -> tensor<256x256xf32>
  %s3 = onnx.Add %s2, %l3 {place.at = #place.at<phase = forward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %g2 = onnx.Mul %d, %s2 {place.at = #place.at<phase = backward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %g1 = onnx.Mul %d, %s1 {place.at = #place.at<phase = backward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %p = onnx.Contract %y2, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = backward>} : (tensor<256x256xbf16>, tensor<256x256xbf16>) -> tensor<256x256xbf16>
  return %s3, %g2, %g1, %p : tensor<256x256xf32>, tensor<256x256xf32>, tensor<256x256xf32>, tensor<256x256xbf16>
}

// Small values are kept as they are, but not two of them: the wider one is made again from the other.
// CHECK-LABEL: func.func @widened
// CHECK: %[[D:.*]] = onnx.Mul %{{.*}} {place.at = #place.at<phase = forward>}
// CHECK: %[[AGAIN:.*]] = onnx.Cast %arg0 {{.*}}place.at = #place.at<phase = backward
// CHECK: onnx.Mul %[[AGAIN]], %[[D]] {place.at = #place.at<phase = backward>}
func.func @widened(%x: tensor<16x16xbf16>) -> (tensor<16x16xf32>, tensor<16x16xf32>) {
  %w = onnx.Cast %x {to = f32, place.at = #place.at<phase = forward>} : (tensor<16x16xbf16>) -> tensor<16x16xf32>
  %d = onnx.Mul %w, %w {place.at = #place.at<phase = forward>} : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  %g = onnx.Mul %w, %d {place.at = #place.at<phase = backward>} : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32>
  return %d, %g : tensor<16x16xf32>, tensor<16x16xf32>
}

// What recomputation does again is to its gradients what the forward pass is: the kernel in front of the product leaves %y
// in 16 bits, which is there anyway, and not %t in 32; its gradient's kernel makes %t from it once more, which is none of
// the segment's.
// CHECK-LABEL: func.func @segment
// CHECK: onnx.Tanh %{{.*}} {place.at = #place.at<phase = backward, recomputed = 3>}
// CHECK: %[[H:.*]] = onnx.Contract {{.*}}recomputed = 3
// CHECK: %[[DT:.*]] = onnx.Contract
// CHECK: %[[WIDE:.*]] = onnx.Cast %[[Y:.*]] {place.at = #place.at<phase = backward>, to = f32}
// CHECK: %[[T:.*]] = onnx.Tanh %[[WIDE]] {place.at = #place.at<phase = backward>}
// CHECK: onnx.Mul %[[DT]], %[[T]] {place.at = #place.at<phase = backward>}
func.func @segment(%x: tensor<256x256xbf16>, %w: tensor<256x256xbf16>, %d: tensor<256x256xbf16>) -> (tensor<256x256xf32>, tensor<256x256xbf16>, tensor<256x256xbf16>) {
  %y = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = backward, recomputed = 3>} : (tensor<256x256xbf16>, tensor<256x256xbf16>) -> tensor<256x256xbf16>
  %l = onnx.Cast %y {to = f32, place.at = #place.at<phase = backward, recomputed = 3>} : (tensor<256x256xbf16>) -> tensor<256x256xf32>
  %t = onnx.Tanh %l {place.at = #place.at<phase = backward, recomputed = 3>} : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %n = onnx.Cast %t {to = bf16, place.at = #place.at<phase = backward, recomputed = 3>} : (tensor<256x256xf32>) -> tensor<256x256xbf16>
  %h = onnx.Contract %n, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = backward, recomputed = 3>} : (tensor<256x256xbf16>, tensor<256x256xbf16>) -> tensor<256x256xbf16>
  %dt = onnx.Contract %d, %h {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = backward>} : (tensor<256x256xbf16>, tensor<256x256xbf16>) -> tensor<256x256xf32>
  %g = onnx.Mul %dt, %t {place.at = #place.at<phase = backward>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %dx = onnx.Contract %y, %d {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = backward>} : (tensor<256x256xbf16>, tensor<256x256xbf16>) -> tensor<256x256xbf16>
  return %g, %dx, %h : tensor<256x256xf32>, tensor<256x256xbf16>, tensor<256x256xbf16>
}
