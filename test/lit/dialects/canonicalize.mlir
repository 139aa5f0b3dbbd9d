// RUN: cleave-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @model
func.func @model(%x: tensor<2x3xf32>, %v: tensor<3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<3x2xf32>) {
  // Transposed twice, reshaped there and back: %x itself.
  %t = onnx.Transpose %x {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %tt = onnx.Transpose %t {perm = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  %r = onnx.Reshape %tt {shape = array<i64: 6>} : (tensor<2x3xf32>) -> tensor<6xf32>
  %rr = onnx.Reshape %r {shape = array<i64: 2, 3>} : (tensor<6xf32>) -> tensor<2x3xf32>
  %one = onnx.Constant dense<1.0> : tensor<2x3xf32>
  %m = onnx.Mul %rr, %one : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: %[[SQUARE:.*]] = onnx.Mul %arg0, %arg0
  %two = onnx.Constant dense<2.0> : tensor<2x3xf32>
  %p = onnx.Pow %x, %two : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  // Computed once, then repeated.
  // CHECK: %[[EXP:.*]] = onnx.Exp %arg1 : (tensor<3xf32>)
  // CHECK: %[[REPEATED:.*]] = onnx.Broadcast %[[EXP]] {dims = array<i64: 1>, shape = array<i64: 2, 3>}
  %b = onnx.Broadcast %v {dims = array<i64: 1>, shape = array<i64: 2, 3>} : (tensor<3xf32>) -> tensor<2x3xf32>
  %e = onnx.Exp %b : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // The transpose comes after.
  // CHECK: %[[NEG:.*]] = onnx.Neg %arg0
  // CHECK: %[[LAST:.*]] = onnx.Transpose %[[NEG]]
  %n = onnx.Neg %t : (tensor<3x2xf32>) -> tensor<3x2xf32>
  // CHECK: return %arg0, %[[SQUARE]], %[[REPEATED]], %[[LAST]]
  return %m, %p, %e, %n : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<3x2xf32>
}

// A transposed operand is read in its own order: of (n, k) instead of (k, n).
// CHECK-LABEL: func.func @contract
// CHECK-NEXT:    %[[Y:.*]] = onnx.Contract %arg0, %arg1 {lhs_indices = array<i64: 0, 1>, result_indices = array<i64: 0, 2>, rhs_indices = array<i64: 2, 1>}
// CHECK-NEXT:    return %[[Y]]
func.func @contract(%x: tensor<2x3xf32>, %w: tensor<5x3xf32>) -> tensor<2x5xf32> {
  %t = onnx.Transpose %w {perm = array<i64: 1, 0>} : (tensor<5x3xf32>) -> tensor<3x5xf32>
  %y = onnx.Contract %x, %t {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x3xf32>, tensor<3x5xf32>) -> tensor<2x5xf32>
  return %y : tensor<2x5xf32>
}

// Rows 1 and 2 of the transpose are columns 1 and 2 of %x. Every row of the broadcast is %v, of which element 1 is taken.
// CHECK-LABEL: func.func @slices
// CHECK-NEXT:    %[[COLUMNS:.*]] = onnx.Slice %arg0 {sizes = array<i64: 4, 2>, starts = array<i64: 0, 1>, steps = array<i64: 1, 1>}
// CHECK-NEXT:    %[[T:.*]] = onnx.Transpose %[[COLUMNS]] {perm = array<i64: 1, 0>} : (tensor<4x2xf32>) -> tensor<2x4xf32>
// CHECK-NEXT:    %[[ONE:.*]] = onnx.Slice %arg1 {sizes = array<i64: 1>, starts = array<i64: 1>, steps = array<i64: 1>}
// CHECK:         %[[B:.*]] = onnx.Broadcast {{.*}} -> tensor<2x1xf32>
// CHECK-NEXT:    return %[[T]], %[[B]]
func.func @slices(%x: tensor<4x3xf32>, %v: tensor<3xf32>) -> (tensor<2x4xf32>, tensor<2x1xf32>) {
  %t = onnx.Transpose %x {perm = array<i64: 1, 0>} : (tensor<4x3xf32>) -> tensor<3x4xf32>
  %s = onnx.Slice %t {starts = array<i64: 1, 0>, sizes = array<i64: 2, 4>, steps = array<i64: 1, 1>} : (tensor<3x4xf32>) -> tensor<2x4xf32>
  %b = onnx.Broadcast %v {shape = array<i64: 5, 3>, dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<5x3xf32>
  %p = onnx.Slice %b {starts = array<i64: 0, 1>, sizes = array<i64: 2, 1>, steps = array<i64: 1, 1>} : (tensor<5x3xf32>) -> tensor<2x1xf32>
  return %s, %p : tensor<2x4xf32>, tensor<2x1xf32>
}

// Nothing to add: no part of a concatenation, no sum, no padding.
// CHECK-LABEL: func.func @nothing
// CHECK-NEXT:    %[[ZERO:.*]] = onnx.Constant dense<0.000000e+00> : tensor<4xf32>
// CHECK-NEXT:    return %arg0, %[[ZERO]], %arg0
func.func @nothing(%x: tensor<4x3xf32>, %none: tensor<4x0xf32>) -> (tensor<4x3xf32>, tensor<4xf32>, tensor<4x3xf32>) {
  %c = onnx.Concat %x, %none {axis = 1 : i64} : (tensor<4x3xf32>, tensor<4x0xf32>) -> tensor<4x3xf32>
  %s = onnx.ReduceSum %none {axes = array<i64: 1>} : (tensor<4x0xf32>) -> tensor<4xf32>
  %p = onnx.Pad %x {low = array<i64: 0, 0>, high = array<i64: 0, 0>, interior = array<i64: 0, 0>, value = 1.0 : f64} : (tensor<4x3xf32>) -> tensor<4x3xf32>
  return %c, %s, %p : tensor<4x3xf32>, tensor<4xf32>, tensor<4x3xf32>
}

// true leaves the other operand of And, and decides Or.
// CHECK-LABEL: func.func @logic
// CHECK-NEXT:    %[[YES:.*]] = onnx.Constant dense<true> : tensor<4xi1>
// CHECK-NEXT:    return %arg0, %[[YES]]
func.func @logic(%x: tensor<4xi1>) -> (tensor<4xi1>, tensor<4xi1>) {
  %yes = onnx.Constant dense<true> : tensor<4xi1>
  %and = onnx.And %yes, %x : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  %or = onnx.Or %x, %yes : (tensor<4xi1>, tensor<4xi1>) -> tensor<4xi1>
  return %and, %or : tensor<4xi1>, tensor<4xi1>
}
