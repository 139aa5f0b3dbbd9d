// RUN: cleave-opt %s --normalize-nodes --canonicalize --verify-core | FileCheck %s

// Shrink has no rule of its own: ONNX's function body is expanded, its attributes filled in.
// CHECK-LABEL: func.func @model
// CHECK-DAG: onnx.Constant dense<-1.500000e+00>
// CHECK: onnx.Less
// CHECK: onnx.Where
// CHECK-NOT: onnx.node
func.func @model(%x: tensor<4xf32>) -> tensor<*xf32> {
  %y = onnx.node "Shrink"(%x) attributes {domain = "", version = 20 : i64, node_name = "shrink", onnx_attributes = {lambd = 1.5 : f32, bias = 0.5 : f32}} : (tensor<4xf32>) -> tensor<*xf32>
  return %y : tensor<*xf32>
}
