// RUN: cleave-opt %s --split-input-file --normalize-nodes --canonicalize --verify-core | FileCheck %s

// Scales as an attribute (opset 7). In float 3 * 2.3333333 is 7, as ONNX infers it.
// CHECK-LABEL: func.func @model
// CHECK-SAME:    -> tensor<1x1x7x4xf32>
func.func @model(%x: tensor<1x1x3x2xf32>) -> tensor<*xf32> {
  %y = onnx.node "Upsample"(%x) attributes {domain = "", version = 8 : i64, node_name = "up", onnx_attributes = {mode = "nearest", scales = array<f32: 1.0, 1.0, 2.3333333, 2.0>}} : (tensor<1x1x3x2xf32>) -> tensor<*xf32>
  return %y : tensor<*xf32>
}

// -----

// Scales as an input (opset 9); element 1 of 4 lies at 0.5.
// CHECK-LABEL: func.func @model
// CHECK:         dense<{{\[\[}}1.000000e+00, 0.000000e+00], [5.000000e-01, 5.000000e-01], [0.000000e+00, 1.000000e+00], [0.000000e+00, 1.000000e+00]]>
// CHECK:         onnx.Contract
func.func @model(%x: tensor<1x1x2xf32>) -> tensor<*xf32> {
  %scales = onnx.Constant dense<[1.0, 1.0, 2.0]> : tensor<3xf32>
  %y = onnx.node "Upsample"(%x, %scales) attributes {domain = "", version = 9 : i64, node_name = "up", onnx_attributes = {mode = "linear"}} : (tensor<1x1x2xf32>, tensor<3xf32>) -> tensor<*xf32>
  return %y : tensor<*xf32>
}
