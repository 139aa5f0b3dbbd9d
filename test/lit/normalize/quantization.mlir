// RUN: cleave-opt %s --normalize-nodes --canonicalize --split-input-file | FileCheck %s

// What is quantized is kept as floats, too: the pair is exact, its slope 1 where nothing is clipped.
// CHECK-LABEL: func.func @model
// CHECK: %[[T:.*]] = onnx.Div %arg0
// CHECK: %[[R:.*]] = onnx.Round %[[T]]
// CHECK: %[[D:.*]] = onnx.Sub %[[R]], %[[T]]
// CHECK: %[[S:.*]] = onnx.StopGradient %[[D]]
// CHECK: onnx.Add %[[T]], %[[S]]
// CHECK-NOT: onnx.Cast {{.*}} to = i8
// CHECK: return %{{.*}} : tensor<4xf32>
func.func @model(%x: tensor<4xf32>) -> tensor<*xf32> {
  %s = onnx.Constant dense<0.5> : tensor<f32>
  %z = onnx.Constant dense<3> : tensor<i8>
  %q = onnx.node "QuantizeLinear"(%x, %s, %z) attributes {domain = "", version = 21 : i64, node_name = "q", onnx_attributes = {}} : (tensor<4xf32>, tensor<f32>, tensor<i8>) -> tensor<*xi8>
  %y = onnx.node "DequantizeLinear"(%q, %s, %z) attributes {domain = "", version = 21 : i64, node_name = "d", onnx_attributes = {}} : (tensor<*xi8>, tensor<f32>, tensor<i8>) -> tensor<*xf32>
  return %y : tensor<*xf32>
}

// -----

// A parameter of 4-bit integers is kept packed, two in a byte, and carried as bytes through what moves it.
// CHECK-LABEL: func.func @model
// CHECK: onnx.read @w : tensor<3xui8>
// CHECK: onnx.And
// CHECK: onnx.Where {{.*}} -> tensor<2x3xi8>
// CHECK: onnx.Transpose {{.*}} -> tensor<3x2xf32>
onnx.param @w : tensor<3xui8> "parameter" {trainable = false, fill = 0.0 : f64}
func.func @model() -> tensor<*xf32> {
  %b = onnx.read @w : tensor<3xui8>
  %w = onnx.node "Elements"(%b) attributes {domain = "cleave", version = 1 : i64, node_name = "w", onnx_attributes = {type = tensor<2x3xi4>}} : (tensor<3xui8>) -> tensor<2x3xi4>
  %t = onnx.node "Transpose"(%w) attributes {domain = "", version = 21 : i64, node_name = "t", onnx_attributes = {}} : (tensor<2x3xi4>) -> tensor<*xi4>
  %s = onnx.Constant dense<0.5> : tensor<f32>
  %y = onnx.node "DequantizeLinear"(%t, %s) attributes {domain = "", version = 21 : i64, node_name = "d", onnx_attributes = {}} : (tensor<*xi4>, tensor<f32>) -> tensor<*xf32>
  return %y : tensor<*xf32>
}
