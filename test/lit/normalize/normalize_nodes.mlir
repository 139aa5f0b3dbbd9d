// RUN: cleave-opt %s --normalize-nodes --canonicalize --verify-core | FileCheck %s

// The target shape is arithmetic on the shape of %x, which folds as it is built; the bias broadcasts explicitly.
// CHECK-LABEL: func.func @model
// CHECK-SAME: -> tensor<8x6xf32>
func.func @model(%x: tensor<8x2x3xf32>, %bias: tensor<6xf32>) -> tensor<*xf32> {
  // CHECK-NEXT: %[[R:.*]] = onnx.Reshape %arg0 {shape = array<i64: 8, 6>}
  // CHECK-NEXT: %[[B:.*]] = onnx.Broadcast %arg1 {dims = array<i64: 1>, shape = array<i64: 8, 6>}
  // CHECK-NEXT: %[[A:.*]] = onnx.Add %[[R]], %[[B]]
  // CHECK-NEXT: return %[[A]]
  %none = onnx.none : none
  %minus = onnx.Constant dense<-1> : tensor<1xi64>
  %s = onnx.node "Shape"(%x) attributes {domain = "", version = 15 : i64, node_name = "shape", onnx_attributes = {end = 1 : i64}} : (tensor<8x2x3xf32>) -> tensor<1xi64>
  %c = onnx.node "Concat"(%s, %minus) attributes {domain = "", version = 15 : i64, node_name = "concat", onnx_attributes = {axis = 0 : i64}} : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
  %r = onnx.node "Reshape"(%x, %c) attributes {domain = "", version = 15 : i64, node_name = "reshape", onnx_attributes = {}} : (tensor<8x2x3xf32>, tensor<2xi64>) -> tensor<*xf32>
  %cl = onnx.node "Clip"(%r, %none, %none) attributes {domain = "", version = 15 : i64, node_name = "clip", onnx_attributes = {}} : (tensor<*xf32>, none, none) -> tensor<*xf32>
  %y = onnx.node "Add"(%cl, %bias) attributes {domain = "", version = 15 : i64, node_name = "add", onnx_attributes = {}} : (tensor<*xf32>, tensor<6xf32>) -> tensor<*xf32>
  return %y : tensor<*xf32>
}
