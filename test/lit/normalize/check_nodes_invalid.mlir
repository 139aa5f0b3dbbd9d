// RUN: not cleave-opt %s --check-nodes 2>&1 | FileCheck %s

// All faults of a model in one report.
// CHECK-DAG: node 'few' (Add, opset 14): {{.*}}inputs
// CHECK-DAG: node 'unknown' (Relu, opset 14): {{.*}}'slope'
func.func @model(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = onnx.node "Add"(%x) attributes {domain = "", version = 14 : i64, node_name = "few", onnx_attributes = {}} : (tensor<4xf32>) -> tensor<4xf32>
  %b = onnx.node "Relu"(%x) attributes {domain = "", version = 14 : i64, node_name = "unknown", onnx_attributes = {slope = 0.5 : f32}} : (tensor<4xf32>) -> tensor<4xf32>
  return %a, %b : tensor<4xf32>, tensor<4xf32>
}
