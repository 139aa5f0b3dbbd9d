// RUN: not cleave-opt %s --normalize-nodes 2>&1 | FileCheck %s

// CHECK: node 'reshape' (Reshape, opset 20): its input 1 must be known once dimensions are bound
func.func @model(%x: tensor<4xf32>, %shape: tensor<2xi64>) -> tensor<*xf32> {
  %r = onnx.node "Reshape"(%x, %shape) attributes {domain = "", version = 20 : i64, node_name = "reshape", onnx_attributes = {}} : (tensor<4xf32>, tensor<2xi64>) -> tensor<*xf32>
  return %r : tensor<*xf32>
}
