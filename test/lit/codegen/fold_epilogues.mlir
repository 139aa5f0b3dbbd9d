// RUN: cleave-opt %s --fold-epilogues | FileCheck %s

// GELU by tanh, and its derivative in the backward pass: the product keeps what it is applied to.
// CHECK-LABEL: func.func @gelu
// CHECK: %[[Y:.*]], %[[U:.*]] = plan.contract %arg0, %arg1, %arg2 {activation = "gelu", {{.*}}keeps_pre_activation
// CHECK-NOT: onnx.Tanh
// CHECK: plan.contract %arg3, %arg4, %[[U]] {activation = "gelu_gradient"
// CHECK-NOT: onnx.Mul
// CHECK: return %[[Y]], %{{.*}} : tensor<8x16xf32>, tensor<8x16xf32>
func.func @gelu(%x: tensor<8x32xf32>, %w: tensor<32x16xf32>, %b: tensor<16xf32>, %dy: tensor<8x32xf32>, %w2: tensor<32x16xf32>) -> (tensor<8x16xf32>, tensor<8x16xf32>) {
  %c = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  %bias = onnx.Broadcast %b {dims = array<i64: 1>, shape = array<i64: 8, 16>} : (tensor<16xf32>) -> tensor<8x16xf32>
  %u = onnx.Add %c, %bias : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %half = onnx.Constant dense<0.5> : tensor<8x16xf32>
  %one = onnx.Constant dense<1.0> : tensor<8x16xf32>
  %three = onnx.Constant dense<3.0> : tensor<8x16xf32>
  %cubic = onnx.Constant dense<0.044715> : tensor<8x16xf32>
  %scale = onnx.Constant dense<0.7978845608> : tensor<8x16xf32>
  %u3 = onnx.Pow %u, %three : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %s0 = onnx.Mul %cubic, %u3 : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %s1 = onnx.Add %s0, %u : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %s = onnx.Mul %s1, %scale : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %t = onnx.Tanh %s : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %t1 = onnx.Add %t, %one : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %h = onnx.Mul %half, %u : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %y = onnx.Mul %h, %t1 : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %d = onnx.Contract %dy, %w2 {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  // d * (t1 / 2 + h * (1 - t^2) * scale * (1 + 3 cubic u^2))
  %d0 = onnx.Mul %d, %t1 : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %d1 = onnx.Mul %d0, %half : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %d2 = onnx.Mul %d, %h : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %tt = onnx.Mul %t, %t : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %dt = onnx.Sub %one, %tt : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %d3 = onnx.Mul %d2, %dt : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %d4 = onnx.Mul %d3, %scale : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %uu = onnx.Mul %u, %u : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %q0 = onnx.Mul %uu, %cubic : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %q1 = onnx.Mul %q0, %three : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %q = onnx.Add %q1, %one : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %d5 = onnx.Mul %d4, %q : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %du = onnx.Add %d1, %d5 : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  return %y, %du : tensor<8x16xf32>, tensor<8x16xf32>
}

// By erf it is another function, which no library computes: a kernel adds the bias.
// CHECK-LABEL: func.func @exact_gelu
// CHECK: onnx.Contract
// CHECK: onnx.Erf
func.func @exact_gelu(%x: tensor<8x32xf32>, %w: tensor<32x16xf32>, %b: tensor<16xf32>) -> tensor<8x16xf32> {
  %c = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32>
  %bias = onnx.Broadcast %b {dims = array<i64: 1>, shape = array<i64: 8, 16>} : (tensor<16xf32>) -> tensor<8x16xf32>
  %u = onnx.Add %c, %bias : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %half = onnx.Constant dense<0.5> : tensor<8x16xf32>
  %one = onnx.Constant dense<1.0> : tensor<8x16xf32>
  %scale = onnx.Constant dense<0.70710678> : tensor<8x16xf32>
  %s = onnx.Mul %u, %scale : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %e = onnx.Erf %s : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %e1 = onnx.Add %e, %one : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %h = onnx.Mul %u, %half : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %y = onnx.Mul %h, %e1 : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  return %y : tensor<8x16xf32>
}

// In bf16, between two products: the bias is rounded once, the sum too.
// CHECK-LABEL: func.func @low
// CHECK: %[[B:.*]] = onnx.Cast %arg2 {{.*}}-> tensor<16xbf16>
// CHECK: %[[U:.*]] = plan.contract %arg0, %arg1, %[[B]] {{.*}}-> tensor<8x16xbf16>
// CHECK-NOT: onnx.Add
// CHECK: onnx.Contract %[[U]], %arg3
func.func @low(%x: tensor<8x32xbf16>, %w: tensor<32x16xbf16>, %b: tensor<16xf32>, %w2: tensor<16x4xbf16>) -> tensor<8x4xbf16> {
  %c = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<8x32xbf16>, tensor<32x16xbf16>) -> tensor<8x16xbf16>
  %wide = onnx.Cast %c {to = f32} : (tensor<8x16xbf16>) -> tensor<8x16xf32>
  %bias = onnx.Broadcast %b {dims = array<i64: 1>, shape = array<i64: 8, 16>} : (tensor<16xf32>) -> tensor<8x16xf32>
  %u = onnx.Add %wide, %bias : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %low = onnx.Cast %u {to = bf16} : (tensor<8x16xf32>) -> tensor<8x16xbf16>
  %y = onnx.Contract %low, %w2 {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<8x16xbf16>, tensor<16x4xbf16>) -> tensor<8x4xbf16>
  return %y : tensor<8x4xbf16>
}

// The gradient of a bias beside its weight's.
// CHECK-LABEL: func.func @sum
// CHECK: %[[DW:.*]], %[[DB:.*]] = plan.contract %arg0, %arg1 {{.*}}sum_of = "rhs"{{.*}}-> (tensor<32x16xf32>, tensor<16xf32>)
// CHECK-NOT: onnx.ReduceSum
// CHECK: return %[[DW]], %[[DB]]
func.func @sum(%x: tensor<4x2x32xf32>, %dy: tensor<4x2x16xf32>) -> (tensor<32x16xf32>, tensor<16xf32>) {
  %dw = onnx.Contract %x, %dy {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 0, 1, 3>, result_indices = array<i64: 2, 3>} : (tensor<4x2x32xf32>, tensor<4x2x16xf32>) -> tensor<32x16xf32>
  %db = onnx.ReduceSum %dy {axes = array<i64: 0, 1>} : (tensor<4x2x16xf32>) -> tensor<16xf32>
  return %dw, %db : tensor<32x16xf32>, tensor<16xf32>
}

// The sum goes over other dimensions than the product: no part of it.
// CHECK-LABEL: func.func @other_sum
// CHECK: onnx.ReduceSum
func.func @other_sum(%x: tensor<4x2x32xf32>, %dy: tensor<4x2x16xf32>) -> (tensor<32x16xf32>, tensor<2x16xf32>) {
  %dw = onnx.Contract %x, %dy {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 0, 1, 3>, result_indices = array<i64: 2, 3>} : (tensor<4x2x32xf32>, tensor<4x2x16xf32>) -> tensor<32x16xf32>
  %db = onnx.ReduceSum %dy {axes = array<i64: 0>} : (tensor<4x2x16xf32>) -> tensor<2x16xf32>
  return %dw, %db : tensor<32x16xf32>, tensor<2x16xf32>
}
