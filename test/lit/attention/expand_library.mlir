// A library's attention on a ring of two: the first turn is causal, the second sees all keys, and its rows count where
// the keys come from an earlier device. Rows are merged by their statistics. The
// gradients of keys and values travel home.
// RUN: cleave-opt %s --expand-attention=blocks=2 | FileCheck %s

// CHECK-LABEL: func.func @final
// CHECK: %[[O0:.*]], %[[S0:.*]] = onnx.ScaledAttention {{.*}}right_bound = 0 : i64, scale = 5.000000e-01 : f64} : (tensor<2x2x4x2x8xf32>
// CHECK: onnx.Roll
// CHECK: onnx.Roll
// CHECK: %[[O1:.*]], %[[S1:.*]] = onnx.ScaledAttention
// CHECK-NOT: right_bound
// CHECK-SAME: (tensor<2x2x4x2x8xf32>
// CHECK: onnx.GreaterOrEqual
// CHECK: onnx.Where
// CHECK: onnx.Max
// CHECK: onnx.Log
// CHECK: onnx.ScaledAttentionGrad {{.*}}right_bound = 0
// CHECK: onnx.ScaledAttentionGrad
// CHECK-COUNT-2: onnx.Roll
// CHECK-NOT: onnx.ScaledAttention
func.func @final(%q: tensor<2x8x2x8xf32>, %k: tensor<2x8x2x8xf32>, %v: tensor<2x8x2x8xf32>, %do: tensor<2x8x2x8xf32>) -> (tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>) {
  %out, %stats = onnx.ScaledAttention %q, %k, %v {right_bound = 0 : i64, scale = 0.5 : f64} : (tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>) -> (tensor<2x8x2x8xf32>, tensor<2x2x8xf32>)
  %dq, %dk, %dv = onnx.ScaledAttentionGrad %q, %k, %v, %out, %stats, %do {right_bound = 0 : i64, scale = 0.5 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1>} : (tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>, tensor<2x2x8xf32>, tensor<2x8x2x8xf32>) -> (tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>)
  return %out, %dq, %dk, %dv : tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>, tensor<2x8x2x8xf32>
}
