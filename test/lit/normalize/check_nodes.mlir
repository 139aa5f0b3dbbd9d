// RUN: cleave-opt %s --check-nodes | FileCheck %s

// What ONNX allows stays as it is; an operator that nothing supports is NormalizeNodes' to report.
// CHECK: onnx.node "Relu"
// CHECK: onnx.node "Imaginary"
func.func @model(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = onnx.node "Relu"(%x) attributes {domain = "", version = 14 : i64, node_name = "relu", onnx_attributes = {}} : (tensor<4xf32>) -> tensor<4xf32>
  %z = onnx.node "Imaginary"(%y) attributes {domain = "own", version = 1 : i64, node_name = "other", onnx_attributes = {}} : (tensor<4xf32>) -> tensor<4xf32>
  return %z : tensor<4xf32>
}
