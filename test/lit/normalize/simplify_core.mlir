// RUN: cleave-opt %s --simplify-core --erase-dead-code | FileCheck %s

// CHECK-LABEL: func.func @model
func.func @model(%x: tensor<2x3xf32>, %v: tensor<3xf32>) -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<3x2xf32>) {
  // Transposed twice, reshaped there and back: %x itself.
  %t = onnx.Transpose %x {perm = array<i64: 1, 0>} : (tensor<2x3xf32>) -> tensor<3x2xf32>
  %tt = onnx.Transpose %t {perm = array<i64: 1, 0>} : (tensor<3x2xf32>) -> tensor<2x3xf32>
  %r = onnx.Reshape %tt {shape = array<i64: 6>} : (tensor<2x3xf32>) -> tensor<6xf32>
  %rr = onnx.Reshape %r {shape = array<i64: 2, 3>} : (tensor<6xf32>) -> tensor<2x3xf32>
  %one = onnx.Constant dense<1.0> : tensor<2x3xf32>
  %m = onnx.Mul %rr, %one : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  // CHECK: %[[SQUARE:.*]] = onnx.Mul %arg0, %arg0
  %two = onnx.Constant dense<2.0> : tensor<2x3xf32>
  %p = onnx.Pow %x, %two : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  // Computed once, then repeated.
  // CHECK: %[[EXP:.*]] = onnx.Exp %arg1 : (tensor<3xf32>)
  // CHECK: %[[REPEATED:.*]] = onnx.Broadcast %[[EXP]] {dims = array<i64: 1>, shape = array<i64: 2, 3>}
  %b = onnx.Broadcast %v {dims = array<i64: 1>, shape = array<i64: 2, 3>} : (tensor<3xf32>) -> tensor<2x3xf32>
  %e = onnx.Exp %b : (tensor<2x3xf32>) -> tensor<2x3xf32>
  // The transpose comes after.
  // CHECK: %[[NEG:.*]] = onnx.Neg %arg0
  // CHECK: %[[LAST:.*]] = onnx.Transpose %[[NEG]]
  %n = onnx.Neg %t : (tensor<3x2xf32>) -> tensor<3x2xf32>
  // CHECK: return %arg0, %[[SQUARE]], %[[REPEATED]], %[[LAST]]
  return %m, %p, %e, %n : tensor<2x3xf32>, tensor<2x3xf32>, tensor<2x3xf32>, tensor<3x2xf32>
}
