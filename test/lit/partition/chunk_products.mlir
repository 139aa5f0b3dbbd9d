// RUN: cleave-opt --split-input-file --chunk-products=parts=2 %s | FileCheck %s
// A head with its loss, forward and backward, on one half of the rows and then on the other.

func.func @final(%x: tensor<4x8xf32>, %w: tensor<8x64xf32>) -> (tensor<f32>, tensor<4x8xf32>, tensor<8x64xf32>) {
  %logits = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<4x8xf32>, tensor<8x64xf32>) -> tensor<4x64xf32>
  %e = onnx.Exp %logits : (tensor<4x64xf32>) -> tensor<4x64xf32>
  %s = onnx.ReduceSum %e {axes = array<i64: 1>} : (tensor<4x64xf32>) -> tensor<4xf32>
  %log = onnx.Log %s : (tensor<4xf32>) -> tensor<4xf32>
  %loss = onnx.ReduceSum %log {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %twice = onnx.Add %loss, %loss : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %b = onnx.Broadcast %s {dims = array<i64: 0>, shape = array<i64: 4, 64>} : (tensor<4xf32>) -> tensor<4x64xf32>
  %p = onnx.Div %e, %b : (tensor<4x64xf32>, tensor<4x64xf32>) -> tensor<4x64xf32>
  %dx = onnx.Contract %p, %w {lhs_indices = array<i64: 0, 2>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 1>} : (tensor<4x64xf32>, tensor<8x64xf32>) -> tensor<4x8xf32>
  %dw = onnx.Contract %x, %p {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 0, 2>, result_indices = array<i64: 1, 2>} : (tensor<4x8xf32>, tensor<4x64xf32>) -> tensor<8x64xf32>
  return %twice, %dx, %dw : tensor<f32>, tensor<4x8xf32>, tensor<8x64xf32>
}
// CHECK-LABEL: func.func @final
// CHECK:      %[[X0:.*]] = onnx.Slice %arg0 {place.at = #place.at<chunk = 0>, sizes = array<i64: 2, 8>, starts = array<i64: 0, 0>
// CHECK-NEXT: onnx.Contract %[[X0]], %arg1 {{.*}} -> tensor<2x64xf32>
// CHECK:      %[[S0:.*]] = onnx.ReduceSum {{.*}} -> tensor<2xf32>
// CHECK:      onnx.Broadcast %[[S0]] {{.*}}shape = array<i64: 2, 64>
// CHECK:      %[[DX0:.*]] = onnx.Contract {{.*}} -> tensor<2x8xf32>
// CHECK:      %[[DW0:.*]] = onnx.Contract %[[X0]]{{.*}} -> tensor<8x64xf32>
// CHECK:      onnx.Slice %arg0 {place.at = #place.at<chunk = 1>, sizes = array<i64: 2, 8>, starts = array<i64: 2, 0>
// CHECK:      %[[S1:.*]] = onnx.ReduceSum {{.*}} -> tensor<2xf32>
// CHECK:      %[[DX1:.*]] = onnx.Contract {{.*}} -> tensor<2x8xf32>
// CHECK:      %[[DW1:.*]] = onnx.Contract {{.*}} -> tensor<8x64xf32>
// CHECK:      %[[DW:.*]] = onnx.Add %[[DW0]], %[[DW1]]
// CHECK:      %[[S:.*]] = onnx.Concat %[[S0]], %[[S1]] {axis = 0
// CHECK:      %[[DX:.*]] = onnx.Concat %[[DX0]], %[[DX1]] {axis = 0
// CHECK:      onnx.Log %[[S]]
// CHECK:      return %{{.*}}, %[[DX]], %[[DW]]

// -----

// Logits that somebody else needs whole stay whole.
func.func @logitsLeave(%x: tensor<4x8xf32>, %w: tensor<8x64xf32>) -> (tensor<4xf32>, tensor<4x64xf32>) {
  %logits = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<4x8xf32>, tensor<8x64xf32>) -> tensor<4x64xf32>
  %s = onnx.ReduceSum %logits {axes = array<i64: 1>} : (tensor<4x64xf32>) -> tensor<4xf32>
  return %s, %logits : tensor<4xf32>, tensor<4x64xf32>
}
// CHECK-LABEL: func.func @logitsLeave
// CHECK-NOT: onnx.Slice

// -----

// What a member reads of all rows at once comes after the last part: not possible here.
func.func @rowsMeet(%x: tensor<4x8xf32>, %w: tensor<8x64xf32>) -> tensor<4xf32> {
  %logits = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<4x8xf32>, tensor<8x64xf32>) -> tensor<4x64xf32>
  %most = onnx.ReduceMax %logits {axes = array<i64: 0>} : (tensor<4x64xf32>) -> tensor<64xf32>
  %b = onnx.Broadcast %most {dims = array<i64: 1>, shape = array<i64: 4, 64>} : (tensor<64xf32>) -> tensor<4x64xf32>
  %d = onnx.Sub %logits, %b : (tensor<4x64xf32>, tensor<4x64xf32>) -> tensor<4x64xf32>
  %s = onnx.ReduceSum %d {axes = array<i64: 1>} : (tensor<4x64xf32>) -> tensor<4xf32>
  return %s : tensor<4xf32>
}
// CHECK-LABEL: func.func @rowsMeet
// CHECK-NOT: onnx.Slice

// -----

// Numbers name rows of the whole: a part of the rows has others.
func.func @rowsAreNamed(%x: tensor<4x8xf32>, %w: tensor<8x64xf32>, %at: tensor<3xi64>) -> tensor<3xf32> {
  %logits = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<4x8xf32>, tensor<8x64xf32>) -> tensor<4x64xf32>
  %some = onnx.Gather %logits, %at {axis = 0 : i64} : (tensor<4x64xf32>, tensor<3xi64>) -> tensor<3x64xf32>
  %s = onnx.ReduceSum %some {axes = array<i64: 1>} : (tensor<3x64xf32>) -> tensor<3xf32>
  return %s : tensor<3xf32>
}
// CHECK-LABEL: func.func @rowsAreNamed
// CHECK-NOT: onnx.Slice
