// RUN: cleave-opt %s --absorb-contract-transposes --lower-library-ops | FileCheck %s

onnx.param @w : tensor<64x256xf32> "parameter" {trainable = true, path = "m.data"}
onnx.param @table : tensor<100x8xf32> "parameter" {trainable = true, path = "m.data"}

// M collapses: batch and sequence are adjacent in both tensors. The weight may be packed.
// CHECK-LABEL: func.func @matmul
// CHECK: plan.contract %{{.*}}, %{{.*}} {batch = array<i64>, k = 64 : i64, lhs_strides = array<i64: 64, 1>, m = 128 : i64, n = 256 : i64
// CHECK-SAME: out_strides = array<i64: 256, 1>{{.*}}rhs_is_parameter, rhs_strides = array<i64: 256, 1>
func.func @matmul(%x: tensor<8x16x64xf32>) -> tensor<8x16x256xf32> {
  %w = onnx.read @w : tensor<64x256xf32>
  %y = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 2, 3>, result_indices = array<i64: 0, 1, 3>} : (tensor<8x16x64xf32>, tensor<64x256xf32>) -> tensor<8x16x256xf32>
  return %y : tensor<8x16x256xf32>
}

// Attention scores: batch and head loops over strides, no copy, the Transpose of k is only an index order.
// CHECK-LABEL: func.func @scores
// CHECK-NOT: plan.copy
// CHECK: plan.contract %arg0, %arg1 {batch = array<i64: 2, 4>, k = 16 : i64, lhs_strides = array<i64: 2048, 16, 64, 1>, m = 32 : i64, n = 32 : i64
// CHECK-SAME: rhs_strides = array<i64: 2048, 16, 1, 64>
// CHECK-NOT: plan.copy
func.func @scores(%q: tensor<2x32x4x16xf32>, %k: tensor<2x32x4x16xf32>) -> tensor<2x4x32x32xf32> {
  %t = onnx.Transpose %k {perm = array<i64: 0, 2, 3, 1>} : (tensor<2x32x4x16xf32>) -> tensor<2x4x16x32xf32>
  %y = onnx.Contract %q, %t {lhs_indices = array<i64: 0, 1, 2, 3>, rhs_indices = array<i64: 0, 2, 3, 4>, result_indices = array<i64: 0, 2, 1, 4>} : (tensor<2x32x4x16xf32>, tensor<2x4x16x32xf32>) -> tensor<2x4x32x32xf32>
  return %y : tensor<2x4x32x32xf32>
}

// A column-major result: the operands change places.
// CHECK-LABEL: func.func @swapped
// CHECK: plan.contract %arg1, %arg0
// CHECK-SAME: m = 6 : i64, n = 4 : i64{{.*}}out_strides = array<i64: 4, 1>
func.func @swapped(%x: tensor<4x5xf32>, %y: tensor<5x6xf32>) -> tensor<6x4xf32> {
  %z = onnx.Contract %x, %y {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 2, 0>} : (tensor<4x5xf32>, tensor<5x6xf32>) -> tensor<6x4xf32>
  return %z : tensor<6x4xf32>
}

// The contracted dimensions lie in different orders: one operand has to be copied.
// CHECK-LABEL: func.func @contracted_orders
// CHECK: %[[C:.*]] = plan.copy %arg{{[01]}}
// CHECK: plan.contract {{.*}}%[[C]]
// CHECK-SAME: k = 48 : i64
func.func @contracted_orders(%x: tensor<32x6x8xf32>, %y: tensor<8x6x32xf32>) -> tensor<32x32xf32> {
  %z = onnx.Contract %x, %y {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 2, 1, 3>, result_indices = array<i64: 0, 3>} : (tensor<32x6x8xf32>, tensor<8x6x32xf32>) -> tensor<32x32xf32>
  return %z : tensor<32x32xf32>
}

// A Slice and a Broadcast that only contractions read cost nothing.
// CHECK-LABEL: func.func @sliced
// CHECK-NOT: plan.copy
// CHECK: plan.contract %arg0, %arg1 {batch = array<i64: 4>
// CHECK-SAME: lhs_offset = 3 : i64, lhs_strides = array<i64: 48, 6, 1>
// CHECK-SAME: rhs_strides = array<i64: 0, 5, 1>
func.func @sliced(%x: tensor<4x8x6xf32>, %y: tensor<3x5xf32>) -> tensor<4x8x5xf32> {
  %s = onnx.Slice %x {starts = array<i64: 0, 0, 3>, sizes = array<i64: 4, 8, 3>, steps = array<i64: 1, 1, 1>} : (tensor<4x8x6xf32>) -> tensor<4x8x3xf32>
  %b = onnx.Broadcast %y {shape = array<i64: 4, 3, 5>, dims = array<i64: 1, 2>} : (tensor<3x5xf32>) -> tensor<4x3x5xf32>
  %z = onnx.Contract %s, %b {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 0, 2, 3>, result_indices = array<i64: 0, 1, 3>} : (tensor<4x8x3xf32>, tensor<4x3x5xf32>) -> tensor<4x8x5xf32>
  return %z : tensor<4x8x5xf32>
}

// A chain of movement ops is one copy; adjacent elements are a view; a Reshape is a view.
// CHECK-LABEL: func.func @movement
// CHECK: %[[T:.*]] = plan.copy %arg0 {sizes = array<i64: 3, 4>, source_offset = #plan.affine<base = 1, axes = [], strides = []>, source_strides = array<i64: 1, 6>, target_strides = array<i64: 4, 1>
// CHECK-NOT: plan.copy
// CHECK: %[[R:.*]] = plan.view %[[T]]
// CHECK: %[[V:.*]] = plan.view %arg0 {offset = 12 : i64}
// CHECK: return %[[R]], %[[V]]
func.func @movement(%x: tensor<4x6xf32>) -> (tensor<12xf32>, tensor<2x6xf32>) {
  %t = onnx.Transpose %x {perm = array<i64: 1, 0>} : (tensor<4x6xf32>) -> tensor<6x4xf32>
  %s = onnx.Slice %t {starts = array<i64: 1, 0>, sizes = array<i64: 3, 4>, steps = array<i64: 1, 1>} : (tensor<6x4xf32>) -> tensor<3x4xf32>
  %r = onnx.Reshape %s {shape = array<i64: 12>} : (tensor<3x4xf32>) -> tensor<12xf32>
  %v = onnx.Slice %x {starts = array<i64: 2, 0>, sizes = array<i64: 2, 6>, steps = array<i64: 1, 1>} : (tensor<4x6xf32>) -> tensor<2x6xf32>
  return %r, %v : tensor<12xf32>, tensor<2x6xf32>
}

// CHECK-LABEL: func.func @others
// CHECK: plan.gather {{.*}} {global_rows = 400 : i64, inner = 8 : i64, outer = 1 : i64, rows = 100 : i64, start = #plan.affine<base = 0, axes = {{\[\[}}"tp"]], strides = [100]>
// CHECK: plan.copy {{.*}}fill = 1.000000e+00
// CHECK-SAME: target_offset = 6 : i64
// CHECK-SAME: target_strides = array<i64: 12, 2>
// CHECK: plan.copy {{.*}}source_offset = #plan.affine<base = 0, axes = {{\[\[}}"dp"]], strides = [3]>
// CHECK: plan.fill dense<2.000000e+00>
// CHECK: plan.store %{{.*}}, @w
func.func @others(%i: tensor<5xi64>, %p: tensor<2x3xf32>) -> (tensor<5x8xf32>, tensor<4x6xf32>, tensor<1x3xf32>) {
  %table = onnx.read @table : tensor<100x8xf32>
  %g = onnx.Gather %table, %i {axis = 0 : i64, shard_axes = ["tp"], global_rows = 400 : i64} : (tensor<100x8xf32>, tensor<5xi64>) -> tensor<5x8xf32>
  %pad = onnx.Pad %p {low = array<i64: 1, 0>, high = array<i64: 0, 1>, interior = array<i64: 1, 1>, value = 1.0 : f64} : (tensor<2x3xf32>) -> tensor<4x6xf32>
  %own = dist.own_part %p {axes = ["dp"], dim = 0 : i64} : (tensor<2x3xf32>) -> tensor<1x3xf32>
  %two = onnx.Constant dense<2.0> : tensor<64x256xf32>
  onnx.write @w, %two : tensor<64x256xf32>
  return %g, %pad, %own : tensor<5x8xf32>, tensor<4x6xf32>, tensor<1x3xf32>
}

// The gradient of queries is written sequence first, as only its transpose is read; that of values is read both ways.
// CHECK-LABEL: func.func @attention_gradient
// CHECK: %[[D:.*]]:3 = plan.attention
// CHECK-SAME: gradient_strides = array<i64: 32, 8, 64, 1, 256, 8, 32, 1, 256, 8, 32, 1>
// CHECK-SAME: -> (tensor<8x2x1x4x8xbf16>, tensor<2x8x4x8xbf16>, tensor<2x8x4x8xbf16>)
// CHECK: plan.copy %[[D]]#2
// CHECK: return %[[D]]#0, %[[D]]#1, %[[D]]#2
func.func @attention_gradient(%x: tensor<2x8x4x8xbf16>, %s: tensor<2x4x8xf32>) -> (tensor<8x2x1x4x8xbf16>, tensor<2x8x4x8xbf16>, tensor<2x8x4x8xbf16>, tensor<8x2x4x8xbf16>) {
  %dq, %dk, %dv = onnx.ScaledAttentionGrad %x, %x, %x, %x, %s, %x {scale = 1.0 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1>} : (tensor<2x8x4x8xbf16>, tensor<2x8x4x8xbf16>, tensor<2x8x4x8xbf16>, tensor<2x8x4x8xbf16>, tensor<2x4x8xf32>, tensor<2x8x4x8xbf16>) -> (tensor<2x8x4x8xbf16>, tensor<2x8x4x8xbf16>, tensor<2x8x4x8xbf16>)
  %q = onnx.Reshape %dq {shape = array<i64: 2, 8, 1, 4, 8>} : (tensor<2x8x4x8xbf16>) -> tensor<2x8x1x4x8xbf16>
  %tq = onnx.Transpose %q {perm = array<i64: 1, 0, 2, 3, 4>} : (tensor<2x8x1x4x8xbf16>) -> tensor<8x2x1x4x8xbf16>
  %tv = onnx.Transpose %dv {perm = array<i64: 1, 0, 2, 3>} : (tensor<2x8x4x8xbf16>) -> tensor<8x2x4x8xbf16>
  return %tq, %dk, %dv, %tv : tensor<8x2x1x4x8xbf16>, tensor<2x8x4x8xbf16>, tensor<2x8x4x8xbf16>, tensor<8x2x4x8xbf16>
}
