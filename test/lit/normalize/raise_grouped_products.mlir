// RUN: cleave-opt %s --raise-grouped-products --split-input-file | FileCheck %s

// Matrices of a table, one for each row of the other operand.
// CHECK-LABEL: func.func @tokens
// CHECK-NOT: onnx.Gather
// CHECK: onnx.GroupedContract %arg1, %arg0, %arg2 {group_count = 4 : i64, group_index = 3 : i64, lhs_indices = array<i64: 0, 1>, result_indices = array<i64: 0, 2>, rhs_indices = array<i64: 3, 2, 1>, row_indices = array<i64: 0>}
func.func @tokens(%experts: tensor<4x6x8xf32>, %x: tensor<10x8xf32>, %chosen: tensor<10xi64>) -> tensor<10x6xf32> {
  %w = onnx.Gather %experts, %chosen {axis = 0 : i64} : (tensor<4x6x8xf32>, tensor<10xi64>) -> tensor<10x6x8xf32>
  %y = onnx.Contract %w, %x {lhs_indices = array<i64: 0, 2, 1>, rhs_indices = array<i64: 0, 1>, result_indices = array<i64: 0, 2>} : (tensor<10x6x8xf32>, tensor<10x8xf32>) -> tensor<10x6xf32>
  return %y : tensor<10x6xf32>
}

// -----

// All positions of a sample are of its group.
// CHECK-LABEL: func.func @samples
// CHECK: %[[G:.*]] = onnx.Broadcast %arg2 {dims = array<i64: 0>, shape = array<i64: 5, 3>} : (tensor<5xi64>) -> tensor<5x3xi64>
// CHECK: onnx.GroupedContract %arg1, %arg0, %[[G]] {group_count = 4 : i64, {{.*}}row_indices = array<i64: 0, 1>}
func.func @samples(%experts: tensor<8x4x6xf32>, %x: tensor<5x3x8xf32>, %chosen: tensor<5xi64>) -> tensor<5x3x6xf32> {
  %w = onnx.Gather %experts, %chosen {axis = 1 : i64} : (tensor<8x4x6xf32>, tensor<5xi64>) -> tensor<8x5x6xf32>
  %y = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 2, 0, 3>, result_indices = array<i64: 0, 1, 3>} : (tensor<5x3x8xf32>, tensor<8x5x6xf32>) -> tensor<5x3x6xf32>
  return %y : tensor<5x3x6xf32>
}

// -----

// Each token with each of its two experts: the token is repeated.
// CHECK-LABEL: func.func @choices
// CHECK: %[[X:.*]] = onnx.Broadcast %arg1 {dims = array<i64: 0, 1>, shape = array<i64: 10, 8, 2>} : (tensor<10x8xf32>) -> tensor<10x8x2xf32>
// CHECK: onnx.GroupedContract %[[X]], %arg0, %arg2 {{.*}}lhs_indices = array<i64: 0, 2, 1>, {{.*}}row_indices = array<i64: 0, 1>
func.func @choices(%experts: tensor<4x8x6xf32>, %x: tensor<10x8xf32>, %chosen: tensor<10x2xi64>) -> tensor<10x2x6xf32> {
  %w = onnx.Gather %experts, %chosen {axis = 0 : i64} : (tensor<4x8x6xf32>, tensor<10x2xi64>) -> tensor<10x2x8x6xf32>
  %y = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 2>, rhs_indices = array<i64: 0, 1, 2, 3>, result_indices = array<i64: 0, 1, 3>} : (tensor<10x8xf32>, tensor<10x2x8x6xf32>) -> tensor<10x2x6xf32>
  return %y : tensor<10x2x6xf32>
}

// -----

// At one sample a transpose of the looked-up matrices is a reshape.
// CHECK-LABEL: func.func @one_sample
// CHECK-NOT: onnx.Gather
// CHECK-NOT: onnx.Reshape
// CHECK: onnx.GroupedContract %arg1, %arg0, %arg2 {group_count = 4 : i64, group_index = 3 : i64, lhs_indices = array<i64: 0, 1>, result_indices = array<i64: 0, 2>, rhs_indices = array<i64: 3, 1, 2>, row_indices = array<i64: 0>}
func.func @one_sample(%experts: tensor<4x8x6xf32>, %x: tensor<1x8xf32>, %chosen: tensor<1xi64>) -> tensor<1x6xf32> {
  %w = onnx.Gather %experts, %chosen {axis = 0 : i64} : (tensor<4x8x6xf32>, tensor<1xi64>) -> tensor<1x8x6xf32>
  %t = onnx.Reshape %w {shape = array<i64: 8, 1, 6>} : (tensor<1x8x6xf32>) -> tensor<8x1x6xf32>
  %y = onnx.Contract %x, %t {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 0, 2>, result_indices = array<i64: 0, 2>} : (tensor<1x8xf32>, tensor<8x1x6xf32>) -> tensor<1x6xf32>
  return %y : tensor<1x6xf32>
}

// -----

// Integers have no such command.
// CHECK-LABEL: func.func @integers
// CHECK: onnx.Gather
// CHECK: onnx.Contract
func.func @integers(%experts: tensor<4x6x8xi64>, %x: tensor<10x8xi64>, %chosen: tensor<10xi64>) -> tensor<10x6xi64> {
  %w = onnx.Gather %experts, %chosen {axis = 0 : i64} : (tensor<4x6x8xi64>, tensor<10xi64>) -> tensor<10x6x8xi64>
  %y = onnx.Contract %w, %x {lhs_indices = array<i64: 0, 2, 1>, rhs_indices = array<i64: 0, 1>, result_indices = array<i64: 0, 2>} : (tensor<10x6x8xi64>, tensor<10x8xi64>) -> tensor<10x6xi64>
  return %y : tensor<10x6xi64>
}

// -----

// A vector a row is no matrix, and rows of a batch of tables have no group.
// CHECK-LABEL: func.func @none
// CHECK-COUNT-2: onnx.Gather
// CHECK-NOT: onnx.GroupedContract
// CHECK: return
func.func @none(%table: tensor<9x8xf32>, %x: tensor<10x8xf32>, %chosen: tensor<10xi64>, %tables: tensor<2x4x6x8xf32>, %z: tensor<2x10x8xf32>) -> (tensor<10xf32>, tensor<2x10x6xf32>) {
  %v = onnx.Gather %table, %chosen {axis = 0 : i64} : (tensor<9x8xf32>, tensor<10xi64>) -> tensor<10x8xf32>
  %y = onnx.Contract %v, %x {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 0, 1>, result_indices = array<i64: 0>} : (tensor<10x8xf32>, tensor<10x8xf32>) -> tensor<10xf32>
  %w = onnx.Gather %tables, %chosen {axis = 1 : i64} : (tensor<2x4x6x8xf32>, tensor<10xi64>) -> tensor<2x10x6x8xf32>
  %u = onnx.Contract %w, %z {lhs_indices = array<i64: 0, 1, 2, 3>, rhs_indices = array<i64: 0, 1, 3>, result_indices = array<i64: 0, 1, 2>} : (tensor<2x10x6x8xf32>, tensor<2x10x8xf32>) -> tensor<2x10x6xf32>
  return %y, %u : tensor<10xf32>, tensor<2x10x6xf32>
}
