// RUN: cleave-opt %s --split-input-file --balance-sequence=blocks=2 | FileCheck %s

// Two blocks of two positions are four chunks, in the order 0 3 1 2: what comes from outside along the sequence is permuted.
// CHECK: module attributes {onnx.{{.*}}
// CHECK-LABEL: func.func @model
// CHECK-SAME:    %[[X:.*]]: tensor<3x4x8xf32>
// CHECK:         %[[CUT:.*]] = onnx.Reshape %[[X]] {{.*}}shape = array<i64: 3, 4, 1, 8>
// CHECK:         %[[ORDER:.*]] = onnx.Constant {{.*}}dense<[0, 3, 1, 2]>
// CHECK:         %[[MOVED:.*]] = onnx.Gather %[[CUT]], %[[ORDER]] {axis = 1 : i64
// CHECK:         %[[BALANCED:.*]] = onnx.Reshape %[[MOVED]] {{.*}}shape = array<i64: 3, 4, 8>
// CHECK:         onnx.Attention %[[BALANCED]], %[[BALANCED]], %[[BALANCED]]
// CHECK:         onnx.ReduceSum
func.func @model(%x: tensor<3x4x8xf32>) -> tensor<3x8xf32> {
  %out, %max, %sum = onnx.Attention %x, %x, %x attributes {blocks = 2 : i64, causal, key_dims = array<i64: -1, 1, 1>, out_query = 1 : i64, query_dims = array<i64: 1, -1, -1>, score_key = 2 : i64, score_query = 1 : i64} : (tensor<3x4x8xf32>, tensor<3x4x8xf32>, tensor<3x4x8xf32>) -> (tensor<3x4x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>) {
  ^bb0(%a: tensor<3x4x8xf32>, %b: tensor<3x4x8xf32>, %c: tensor<3x4x8xf32>):
    %s = onnx.Contract %a, %b {lhs_indices = array<i64: 0, 1, 3>, rhs_indices = array<i64: 0, 2, 3>, result_indices = array<i64: 0, 1, 2>} : (tensor<3x4x8xf32>, tensor<3x4x8xf32>) -> tensor<3x4x4xf32>
  } {
  ^bb0(%p: tensor<3x4x4xf32>, %a: tensor<3x4x8xf32>, %b: tensor<3x4x8xf32>, %c: tensor<3x4x8xf32>):
    %o = onnx.Contract %p, %c {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 0, 2, 3>, result_indices = array<i64: 0, 1, 3>} : (tensor<3x4x4xf32>, tensor<3x4x8xf32>) -> tensor<3x4x8xf32>
  }
  %y = onnx.ReduceSum %out {axes = array<i64: 1>} : (tensor<3x4x8xf32>) -> tensor<3x8xf32>
  return %y : tensor<3x8xf32>
}

// -----

// The order would be seen in the result: everything stays as it comes.
// CHECK-LABEL: func.func @model
// CHECK-NOT:     onnx.Gather
func.func @model(%x: tensor<3x4x8xf32>) -> tensor<3x4x8xf32> {
  %out, %max, %sum = onnx.Attention %x, %x, %x attributes {blocks = 2 : i64, causal, key_dims = array<i64: -1, 1, 1>, out_query = 1 : i64, query_dims = array<i64: 1, -1, -1>, score_key = 2 : i64, score_query = 1 : i64} : (tensor<3x4x8xf32>, tensor<3x4x8xf32>, tensor<3x4x8xf32>) -> (tensor<3x4x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>) {
  ^bb0(%a: tensor<3x4x8xf32>, %b: tensor<3x4x8xf32>, %c: tensor<3x4x8xf32>):
    %s = onnx.Contract %a, %b {lhs_indices = array<i64: 0, 1, 3>, rhs_indices = array<i64: 0, 2, 3>, result_indices = array<i64: 0, 1, 2>} : (tensor<3x4x8xf32>, tensor<3x4x8xf32>) -> tensor<3x4x4xf32>
  } {
  ^bb0(%p: tensor<3x4x4xf32>, %a: tensor<3x4x8xf32>, %b: tensor<3x4x8xf32>, %c: tensor<3x4x8xf32>):
    %o = onnx.Contract %p, %c {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 0, 2, 3>, result_indices = array<i64: 0, 1, 3>} : (tensor<3x4x4xf32>, tensor<3x4x8xf32>) -> tensor<3x4x8xf32>
  }
  return %out : tensor<3x4x8xf32>
}
