// RUN: cleave-opt --split-input-file --select-halves %s | FileCheck %s
// Two halves side by side that elementwise ops read are selected from; slices of the halves are taken of what stands in
// memory.

// A rotary embedding of transposed heads, with the gradient's slice of a product. The constant is small, too, then.
func.func @rotary(%x: tensor<2x6x3x8xf32>, %s: tensor<6x8xf32>) -> tensor<2x3x6x8xf32> {
  %two = onnx.Constant dense<2.0> : tensor<2x3x6x8xf32>
  %t = onnx.Transpose %x {perm = array<i64: 0, 2, 1, 3>} : (tensor<2x6x3x8xf32>) -> tensor<2x3x6x8xf32>
  %m = onnx.Mul %t, %two : (tensor<2x3x6x8xf32>, tensor<2x3x6x8xf32>) -> tensor<2x3x6x8xf32>
  %a = onnx.Slice %m {starts = array<i64: 0, 0, 0, 4>, sizes = array<i64: 2, 3, 6, 4>, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x3x6x8xf32>) -> tensor<2x3x6x4xf32>
  %n = onnx.Neg %a : (tensor<2x3x6x4xf32>) -> tensor<2x3x6x4xf32>
  %b = onnx.Slice %m {starts = array<i64: 0, 0, 0, 0>, sizes = array<i64: 2, 3, 6, 4>, steps = array<i64: 1, 1, 1, 1>} : (tensor<2x3x6x8xf32>) -> tensor<2x3x6x4xf32>
  %r = onnx.Concat %n, %b {axis = 3 : i64} : (tensor<2x3x6x4xf32>, tensor<2x3x6x4xf32>) -> tensor<2x3x6x8xf32>
  %sin = onnx.Broadcast %s {shape = array<i64: 2, 3, 6, 8>, dims = array<i64: 2, 3>} : (tensor<6x8xf32>) -> tensor<2x3x6x8xf32>
  %y = onnx.Mul %r, %sin : (tensor<2x3x6x8xf32>, tensor<2x3x6x8xf32>) -> tensor<2x3x6x8xf32>
  return %y : tensor<2x3x6x8xf32>
}
// CHECK-LABEL: func.func @rotary(%arg0
// CHECK-DAG: %[[HIGH:.*]] = onnx.Slice %arg0 {{.*}}starts = array<i64: 0, 0, 0, 4>
// CHECK-DAG: %[[LOW:.*]] = onnx.Slice %arg0 {{.*}}starts = array<i64: 0, 0, 0, 0>
// CHECK-DAG: onnx.Transpose %[[HIGH]]
// CHECK-DAG: onnx.Transpose %[[LOW]]
// CHECK-NOT: onnx.Slice
// CHECK: %[[WHICH:.*]] = onnx.Iota {dim = 3 : i64{{.*}} -> tensor<2x3x6x2x4xi64>
// CHECK: %[[FIRST:.*]] = onnx.Equal %[[WHICH]]
// CHECK: onnx.Where %[[FIRST]], {{.*}} -> tensor<2x3x6x2x4xf32>
// CHECK: onnx.Reshape {{.*}} -> tensor<2x3x6x8xf32>

// -----

// A product reads it from memory, where copies put it.
func.func @product(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>, %w: tensor<16x3xf32>) -> tensor<4x3xf32> {
  %c = onnx.Concat %a, %b {axis = 1 : i64} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x16xf32>
  %y = onnx.Contract %c, %w {lhs_indices = array<i64: 0, 2>, rhs_indices = array<i64: 2, 1>, result_indices = array<i64: 0, 1>} : (tensor<4x16xf32>, tensor<16x3xf32>) -> tensor<4x3xf32>
  return %y : tensor<4x3xf32>
}
// CHECK-LABEL: func.func @product
// CHECK: onnx.Concat

// -----

// Parts of unequal sizes have no common loop nest.
func.func @unequal(%a: tensor<4x8xf32>, %b: tensor<4x6xf32>) -> tensor<4x14xf32> {
  %c = onnx.Concat %a, %b {axis = 1 : i64} : (tensor<4x8xf32>, tensor<4x6xf32>) -> tensor<4x14xf32>
  %y = onnx.Relu %c : (tensor<4x14xf32>) -> tensor<4x14xf32>
  return %y : tensor<4x14xf32>
}
// CHECK-LABEL: func.func @unequal
// CHECK: onnx.Concat
