// RUN: cleave-opt %s --name-operations | FileCheck %s

// The node's name is that of its product; a decision asks for none of the backward pass.
// CHECK: module attributes {place.nodes = ["/up/MatMul:Transpose", "/up/MatMul", "/up/MatMul:Transpose.2", "/act"]}
// CHECK: onnx.Transpose %arg0 {{.*}}place.node = "/up/MatMul:Transpose"
// CHECK: onnx.Contract {{.*}}place.node = "/up/MatMul"
// CHECK: onnx.Transpose {{.*}}place.node = "/up/MatMul:Transpose.2"
// CHECK: onnx.Tanh {{.*}}place.node = "/act"
// CHECK-NOT: place.node
func.func @model(%x: tensor<64x8xf32>, %w: tensor<64x256xf32>) -> tensor<256x8xf32> {
  %t = onnx.Transpose %x {perm = array<i64: 1, 0>} : (tensor<64x8xf32>) -> tensor<8x64xf32> loc("/up/MatMul")
  %y = onnx.Contract %t, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<8x64xf32>, tensor<64x256xf32>) -> tensor<8x256xf32> loc("/up/MatMul")
  %z = onnx.Transpose %y {perm = array<i64: 1, 0>} : (tensor<8x256xf32>) -> tensor<256x8xf32> loc("/up/MatMul")
  %a = onnx.Tanh %z : (tensor<256x8xf32>) -> tensor<256x8xf32> loc("/act")
  %g = onnx.Tanh %a {place.at = #place.at<phase = backward>} : (tensor<256x8xf32>) -> tensor<256x8xf32> loc("/act")
  return %g : tensor<256x8xf32>
}
