// RUN: not cleave-opt %s --normalize-nodes 2>&1 | FileCheck %s

// Everything that is missing in one error, with the nodes.
// CHECK: the model uses operators that are not supported:
// CHECK-NEXT: TfIdfVectorizer (opset 20), 2 nodes: 'first', 'third'
// CHECK-NEXT: my.domain.Odd (opset 1), 1 node: 'second'
func.func @model(%x: tensor<4xf32>, %k: tensor<1xi64>) {
  %a:2 = onnx.node "TfIdfVectorizer"(%x, %k) attributes {domain = "", version = 20 : i64, node_name = "first", onnx_attributes = {}} : (tensor<4xf32>, tensor<1xi64>) -> (tensor<*xf32>, tensor<*xi64>)
  %b = onnx.node "Odd"(%x) attributes {domain = "my.domain", version = 1 : i64, node_name = "second", onnx_attributes = {}} : (tensor<4xf32>) -> tensor<*xf32>
  %c:2 = onnx.node "TfIdfVectorizer"(%x, %k) attributes {domain = "", version = 20 : i64, node_name = "third", onnx_attributes = {}} : (tensor<4xf32>, tensor<1xi64>) -> (tensor<*xf32>, tensor<*xi64>)
  %d = onnx.node "Relu"(%x) attributes {domain = "", version = 20 : i64, node_name = "fourth", onnx_attributes = {}} : (tensor<4xf32>) -> tensor<*xf32>
  return
}
