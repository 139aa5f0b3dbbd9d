// Softmax attention as exporters write it becomes the operation that libraries have: scales are taken out, a causal table
// is a bound, any other mask a bias of its own size, and keys that heads share are not repeated. DecomposeAttention
// is the way back.
// RUN: cleave-opt %s --raise-attention | FileCheck %s
// RUN: cleave-opt %s --raise-attention --decompose-attention | FileCheck %s --check-prefix=WRITTEN
// Keys are repeated where their heads would not divide over the devices that the heads of the queries do.
// RUN: cleave-opt %s --raise-attention=head-ways=4 | FileCheck %s --check-prefix=WAYS
// WAYS: onnx.ScaledAttention {{.*}} : (tensor<2x4x4x8xf32>, tensor<2x4x4x8xf32>, tensor<2x4x4x8xf32>, tensor<2x1x4x4xf32>)

// CHECK-LABEL: func.func @model
// CHECK: %[[Q:.*]] = onnx.Transpose %arg0 {perm = array<i64: 0, 2, 1, 3>, place.at = #place.at<phase = forward>}
// CHECK: %[[K:.*]] = onnx.Transpose %arg1 {{.*}} -> tensor<2x4x2x8xf32>
// CHECK: %[[V:.*]] = onnx.Transpose %arg2 {{.*}} -> tensor<2x4x2x8xf32>
// CHECK: %[[B:.*]] = onnx.Broadcast {{.*}} {dims = array<i64: 0, 3>, place.at = #place.at<phase = forward>, shape = array<i64: 2, 1, 4, 4>}
// CHECK: %[[OUT:.*]], %{{.*}} = onnx.ScaledAttention %[[Q]], %[[K]], %[[V]], %[[B]] {place.at = #place.at<phase = forward>, place.decided_factors = array<i64: 0, 1, -1, -1, -1, -1, -1>
// CHECK-SAME: right_bound = 0 : i64, scale = 2.500000e-01
// CHECK: onnx.Transpose %[[OUT]] {perm = array<i64: 0, 2, 1, 3>, place.at = #place.at<phase = forward>}
// CHECK-NOT: onnx.Exp

// WRITTEN-LABEL: func.func @model
// WRITTEN-NOT: onnx.ScaledAttention
// WRITTEN: onnx.Contract
// WRITTEN: onnx.ReduceMax
// WRITTEN: onnx.Log
// WRITTEN: onnx.Contract
func.func @model(%q: tensor<2x4x4x8xf32>, %k: tensor<2x2x4x8xf32>, %v: tensor<2x2x4x8xf32>, %padding: tensor<2x4xf32>) -> (tensor<2x4x4x8xf32> {onnx.name = "y"}) {
  %kb = onnx.Broadcast %k {dims = array<i64: 0, 1, 3, 4>, shape = array<i64: 2, 2, 2, 4, 8>} : (tensor<2x2x4x8xf32>) -> tensor<2x2x2x4x8xf32>
  %kr = onnx.Reshape %kb {shape = array<i64: 2, 4, 4, 8>} : (tensor<2x2x2x4x8xf32>) -> tensor<2x4x4x8xf32>
  %vb = onnx.Broadcast %v {dims = array<i64: 0, 1, 3, 4>, shape = array<i64: 2, 2, 2, 4, 8>} : (tensor<2x2x4x8xf32>) -> tensor<2x2x2x4x8xf32>
  %vr = onnx.Reshape %vb {shape = array<i64: 2, 4, 4, 8>} : (tensor<2x2x2x4x8xf32>) -> tensor<2x4x4x8xf32>
  %half = onnx.Constant dense<5.0e-01> : tensor<2x4x4x8xf32>
  %qh = onnx.Mul %q, %half : (tensor<2x4x4x8xf32>, tensor<2x4x4x8xf32>) -> tensor<2x4x4x8xf32>
  %kh = onnx.Mul %kr, %half : (tensor<2x4x4x8xf32>, tensor<2x4x4x8xf32>) -> tensor<2x4x4x8xf32>
  %s = onnx.Contract %qh, %kh {lhs_indices = array<i64: 0, 1, 2, 4>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 3>} : (tensor<2x4x4x8xf32>, tensor<2x4x4x8xf32>) -> tensor<2x4x4x4xf32>
  %table = onnx.Constant dense<[[0.0, 0xFF800000, 0xFF800000, 0xFF800000], [0.0, 0.0, 0xFF800000, 0xFF800000], [0.0, 0.0, 0.0, 0xFF800000], [0.0, 0.0, 0.0, 0.0]]> : tensor<4x4xf32>
  %mask = onnx.Broadcast %table {dims = array<i64: 2, 3>, shape = array<i64: 2, 4, 4, 4>} : (tensor<4x4xf32>) -> tensor<2x4x4x4xf32>
  %x0 = onnx.Add %s, %mask : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %pad = onnx.Broadcast %padding {dims = array<i64: 0, 3>, shape = array<i64: 2, 4, 4, 4>} : (tensor<2x4xf32>) -> tensor<2x4x4x4xf32>
  %x = onnx.Add %x0, %pad : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %m = onnx.ReduceMax %x {axes = array<i64: 3>} : (tensor<2x4x4x4xf32>) -> tensor<2x4x4xf32>
  %m0 = onnx.StopGradient %m : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %mb = onnx.Broadcast %m0 {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 4, 4, 4>} : (tensor<2x4x4xf32>) -> tensor<2x4x4x4xf32>
  %d = onnx.Sub %x, %mb : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %e = onnx.Exp %d : (tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %l = onnx.ReduceSum %e {axes = array<i64: 3>} : (tensor<2x4x4x4xf32>) -> tensor<2x4x4xf32>
  %lb = onnx.Broadcast %l {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 4, 4, 4>} : (tensor<2x4x4xf32>) -> tensor<2x4x4x4xf32>
  %p = onnx.Div %e, %lb : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %o = onnx.Contract %p, %vr {lhs_indices = array<i64: 0, 1, 2, 3>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 4>} : (tensor<2x4x4x4xf32>, tensor<2x4x4x8xf32>) -> tensor<2x4x4x8xf32>
  return %o : tensor<2x4x4x8xf32>
}
