// RUN: cleave-opt %s --absorb-contract-transposes | FileCheck %s

// Of both operands, and of the result that nobody else reads.
// CHECK-LABEL: func.func @final
// CHECK-SAME:    %[[Q:.*]]: tensor<3x4x8xf32>, %[[K:.*]]: tensor<3x8x5xf32>
// CHECK-NEXT:    %[[S:.*]] = onnx.Contract %[[Q]], %[[K]] {lhs_indices = array<i64: 0, 1, 3>, result_indices = array<i64: 0, 2, 1>, rhs_indices = array<i64: 0, 3, 2>} {{.*}} -> tensor<3x5x4xf32>
// CHECK-NEXT:    return %[[S]]
func.func @final(%q: tensor<3x4x8xf32>, %k: tensor<3x8x5xf32>) -> tensor<3x5x4xf32> {
  %t = onnx.Transpose %k {perm = array<i64: 0, 2, 1>} : (tensor<3x8x5xf32>) -> tensor<3x5x8xf32>
  %s = onnx.Contract %q, %t {lhs_indices = array<i64: 0, 1, 3>, rhs_indices = array<i64: 0, 2, 3>, result_indices = array<i64: 0, 1, 2>} : (tensor<3x4x8xf32>, tensor<3x5x8xf32>) -> tensor<3x4x5xf32>
  %y = onnx.Transpose %s {perm = array<i64: 0, 2, 1>} : (tensor<3x4x5xf32>) -> tensor<3x5x4xf32>
  return %y : tensor<3x5x4xf32>
}

// A result that somebody else reads stays.
// CHECK-LABEL: func.func @both
// CHECK:         %[[S:.*]] = onnx.Contract
// CHECK:         %[[T:.*]] = onnx.Transpose %[[S]]
// CHECK:         return %[[S]], %[[T]]
func.func @both(%a: tensor<4x8xf32>, %b: tensor<8x5xf32>) -> (tensor<4x5xf32>, tensor<5x4xf32>) {
  %s = onnx.Contract %a, %b {lhs_indices = array<i64: 0, 2>, rhs_indices = array<i64: 2, 1>, result_indices = array<i64: 0, 1>} : (tensor<4x8xf32>, tensor<8x5xf32>) -> tensor<4x5xf32>
  %t = onnx.Transpose %s {perm = array<i64: 1, 0>} : (tensor<4x5xf32>) -> tensor<5x4xf32>
  return %s, %t : tensor<4x5xf32>, tensor<5x4xf32>
}
