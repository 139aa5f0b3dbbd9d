// RUN: cleave-opt %s --absorb-transposes --erase-dead-code | FileCheck %s

// CHECK-LABEL: func.func @model
// CHECK-NEXT: %[[Y:.*]] = onnx.Contract %arg0, %arg1 {lhs_indices = array<i64: 0, 1>, result_indices = array<i64: 2, 0>, rhs_indices = array<i64: 2, 1>}
// CHECK-SAME: -> tensor<5x2xf32>
// CHECK-NEXT: return %[[Y]]
func.func @model(%x: tensor<2x3xf32>, %w: tensor<5x3xf32>) -> tensor<5x2xf32> {
  %t = onnx.Transpose %w {perm = array<i64: 1, 0>} : (tensor<5x3xf32>) -> tensor<3x5xf32>
  %y = onnx.Contract %x, %t {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x3xf32>, tensor<3x5xf32>) -> tensor<2x5xf32>
  %z = onnx.Transpose %y {perm = array<i64: 1, 0>} : (tensor<2x5xf32>) -> tensor<5x2xf32>
  return %z : tensor<5x2xf32>
}
