// Softmax attention as exporters write it becomes one operation: what has a query and a key dimension goes into its
// regions, the rest are operands. Grouped keys travel before they are repeated; a causal table becomes positions.
// RUN: cleave-opt %s --split-input-file --recognize-attention="blocks=2" | FileCheck %s

// CHECK-LABEL: func.func @model
// CHECK: %[[POSITIONS:.*]] = onnx.Iota
// CHECK: onnx.Attention %arg0, %arg1, %arg2
// CHECK-SAME: blocks = 2 : i64, causal
// CHECK-SAME: key_dims = array<i64: -1, 2, 2, -1, 0>
// CHECK-SAME: query_dims = array<i64: 2, -1, -1, 0, -1>
// CHECK-NOT: onnx.Exp
// CHECK: onnx.LessOrEqual
// CHECK-NOT: onnx.ReduceMax
func.func @model(%q: tensor<2x3x4x8xf32>, %k: tensor<2x3x4x8xf32>, %v: tensor<2x3x4x8xf32>) -> (tensor<2x3x4x8xf32> {onnx.name = "y"}) {
  %s = onnx.Contract %q, %k {lhs_indices = array<i64: 0, 1, 2, 4>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 3>} : (tensor<2x3x4x8xf32>, tensor<2x3x4x8xf32>) -> tensor<2x3x4x4xf32>
  %c = onnx.Constant dense<2.5e-01> : tensor<2x3x4x4xf32>
  %scaled = onnx.Mul %s, %c : (tensor<2x3x4x4xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
  %table = onnx.Constant dense<[[0.0, 0xFF800000, 0xFF800000, 0xFF800000], [0.0, 0.0, 0xFF800000, 0xFF800000], [0.0, 0.0, 0.0, 0xFF800000], [0.0, 0.0, 0.0, 0.0]]> : tensor<4x4xf32>
  %mask = onnx.Broadcast %table {dims = array<i64: 2, 3>, shape = array<i64: 2, 3, 4, 4>} : (tensor<4x4xf32>) -> tensor<2x3x4x4xf32>
  %x = onnx.Add %scaled, %mask : (tensor<2x3x4x4xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
  %m = onnx.ReduceMax %x {axes = array<i64: 3>} : (tensor<2x3x4x4xf32>) -> tensor<2x3x4xf32>
  %m0 = onnx.StopGradient %m : (tensor<2x3x4xf32>) -> tensor<2x3x4xf32>
  %mb = onnx.Broadcast %m0 {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 3, 4, 4>} : (tensor<2x3x4xf32>) -> tensor<2x3x4x4xf32>
  %d = onnx.Sub %x, %mb : (tensor<2x3x4x4xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
  %e = onnx.Exp %d : (tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
  %l = onnx.ReduceSum %e {axes = array<i64: 3>} : (tensor<2x3x4x4xf32>) -> tensor<2x3x4xf32>
  %lb = onnx.Broadcast %l {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 3, 4, 4>} : (tensor<2x3x4xf32>) -> tensor<2x3x4x4xf32>
  %p = onnx.Div %e, %lb : (tensor<2x3x4x4xf32>, tensor<2x3x4x4xf32>) -> tensor<2x3x4x4xf32>
  %o = onnx.Contract %p, %v {lhs_indices = array<i64: 0, 1, 2, 3>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 4>} : (tensor<2x3x4x4xf32>, tensor<2x3x4x8xf32>) -> tensor<2x3x4x8xf32>
  return %o : tensor<2x3x4x8xf32>
}
