// On blocks: queries stay, keys and values move on by one block a turn; the state of the online softmax is merged.
// RUN: cleave-opt %s --expand-attention | FileCheck %s

// CHECK-LABEL: func.func @final
// CHECK:     %[[Q:.*]] = onnx.Transpose {{.*}} -> tensor<2x3x2x8xf32>
// CHECK:     %[[K:.*]] = onnx.Transpose {{.*}} -> tensor<2x3x2x8xf32>
// CHECK:     %[[V:.*]] = onnx.Transpose {{.*}} -> tensor<2x3x2x8xf32>
// CHECK:     onnx.Contract %[[Q]], %[[K]] {{.*}} -> tensor<2x3x2x2xf32>
// CHECK:     onnx.ReduceMax
// CHECK:     onnx.Contract %{{.*}}, %[[V]] {{.*}} -> tensor<2x3x2x8xf32>
// CHECK-DAG: %[[K1:.*]] = onnx.Roll %[[K]] {dim = 0 : i64, distance = 1 : i64, place.at = #place.at<phase = forward>}
// CHECK-DAG: %[[V1:.*]] = onnx.Roll %[[V]] {dim = 0 : i64, distance = 1 : i64, place.at = #place.at<phase = forward>}
// CHECK:     onnx.Contract %[[Q]], %[[K1]]
// CHECK:     onnx.Contract %{{.*}}, %[[V1]]
// CHECK-NOT: onnx.Roll
// CHECK-NOT: onnx.Attention
func.func @final(%q: tensor<3x4x8xf32>, %k: tensor<3x4x8xf32>, %v: tensor<3x4x8xf32>) -> (tensor<3x4x8xf32> {onnx.name = "y"}) {
  %out, %max, %sum = onnx.Attention %q, %k, %v attributes {blocks = 2 : i64, key_dims = array<i64: -1, 1, 1>, out_query = 1 : i64, query_dims = array<i64: 1, -1, -1>, score_key = 2 : i64, score_query = 1 : i64} : (tensor<3x4x8xf32>, tensor<3x4x8xf32>, tensor<3x4x8xf32>) -> (tensor<3x4x8xf32>, tensor<3x4xf32>, tensor<3x4xf32>) {
  ^bb0(%a: tensor<3x4x8xf32>, %b: tensor<3x4x8xf32>, %c: tensor<3x4x8xf32>):
    %s = onnx.Contract %a, %b {lhs_indices = array<i64: 0, 1, 3>, rhs_indices = array<i64: 0, 2, 3>, result_indices = array<i64: 0, 1, 2>} : (tensor<3x4x8xf32>, tensor<3x4x8xf32>) -> tensor<3x4x4xf32>
  } {
  ^bb0(%p: tensor<3x4x4xf32>, %a: tensor<3x4x8xf32>, %b: tensor<3x4x8xf32>, %c: tensor<3x4x8xf32>):
    %o = onnx.Contract %p, %c {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 0, 2, 3>, result_indices = array<i64: 0, 1, 3>} : (tensor<3x4x4xf32>, tensor<3x4x8xf32>) -> tensor<3x4x8xf32>
  }
  return %out : tensor<3x4x8xf32>
}
