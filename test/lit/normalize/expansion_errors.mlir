// RUN: not cleave-opt %s -split-input-file --normalize-nodes 2>&1 | FileCheck %s

// CHECK: node 'keep' (Compress, opset 11): its input 1 must be known once dimensions are bound
func.func @model(%x: tensor<4xf32>, %c: tensor<4xi1>) -> tensor<*xf32> {
  %y = onnx.node "Compress"(%x, %c) attributes {domain = "", version = 11 : i64, node_name = "keep", onnx_attributes = {axis = 0 : i64}} : (tensor<4xf32>, tensor<4xi1>) -> tensor<*xf32>
  return %y : tensor<*xf32>
}

// -----
// CHECK: node 'roi' (RoiAlign, opset 22): takes as many positions as its regions are large, which depends on data: it needs a sampling_ratio of 1 or more
func.func @model(%x: tensor<1x2x4x4xf32>, %r: tensor<3x4xf32>, %b: tensor<3xi64>) -> tensor<*xf32> {
  %y = onnx.node "RoiAlign"(%x, %r, %b) attributes {domain = "", version = 22 : i64, node_name = "roi", onnx_attributes = {}} : (tensor<1x2x4x4xf32>, tensor<3x4xf32>, tensor<3xi64>) -> tensor<*xf32>
  return %y : tensor<*xf32>
}

// -----
// CHECK: node 'grid' (GridSample, opset 22): its attribute 'padding_mode' is 'mirror', which is none of zeros, border, reflection
func.func @model(%x: tensor<1x2x4x4xf32>, %g: tensor<1x3x3x2xf32>) -> tensor<*xf32> {
  %y = onnx.node "GridSample"(%x, %g) attributes {domain = "", version = 22 : i64, node_name = "grid", onnx_attributes = {padding_mode = "mirror"}} : (tensor<1x2x4x4xf32>, tensor<1x3x3x2xf32>) -> tensor<*xf32>
  return %y : tensor<*xf32>
}

// -----
// CHECK: node 'dft' (DFT, opset 20): its axis must not be the last, which holds real and imaginary parts
func.func @model(%x: tensor<2x8x2xf32>) -> tensor<*xf32> {
  %none = onnx.none : none
  %axis = onnx.Constant dense<2> : tensor<i64>
  %y = onnx.node "DFT"(%x, %none, %axis) attributes {domain = "", version = 20 : i64, node_name = "dft", onnx_attributes = {}} : (tensor<2x8x2xf32>, none, tensor<i64>) -> tensor<*xf32>
  return %y : tensor<*xf32>
}

// -----
// CHECK: node 'q' (QuantizeLinear, opset 21): needs one scale and zero point, or one for each of the 3 indices along axis 1
func.func @model(%x: tensor<2x3xf32>, %s: tensor<2xf32>) -> tensor<*xui8> {
  %y = onnx.node "QuantizeLinear"(%x, %s) attributes {domain = "", version = 21 : i64, node_name = "q", onnx_attributes = {}} : (tensor<2x3xf32>, tensor<2xf32>) -> tensor<*xui8>
  return %y : tensor<*xui8>
}

// -----
// CHECK: node 'scan' (Scan, opset 11): its sequences differ in length
func.func @model(%a: tensor<f32>, %x: tensor<3xf32>, %z: tensor<4xf32>) -> tensor<*xf32> {
  %y = onnx.node "Scan"(%a, %x, %z) attributes {domain = "", version = 11 : i64, node_name = "scan", onnx_attributes = {body = 0 : i64, num_scan_inputs = 2 : i64}} : (tensor<f32>, tensor<3xf32>, tensor<4xf32>) -> tensor<*xf32> {
  ^bb0(%b: tensor<f32>, %c: tensor<f32>, %d: tensor<f32>):
    onnx.node "yield"(%b) attributes {domain = "cleave", version = 1 : i64, node_name = "", onnx_attributes = {}} : (tensor<f32>) -> ()
  }
  return %y : tensor<*xf32>
}

// -----
// CHECK: node 'gqa' (GroupQueryAttention, opset 1): its input 3 ('past_key') is not supported
func.func @model(%q: tensor<1x2x8xf32>, %k: tensor<1x2x4xf32>, %p: tensor<1x1x3x4xf32>, %n: tensor<1xi32>) -> tensor<*xf32> {
  %y = onnx.node "GroupQueryAttention"(%q, %k, %k, %p, %p, %n, %n) attributes {domain = "com.microsoft", version = 1 : i64, node_name = "gqa", onnx_attributes = {num_heads = 2 : i64, kv_num_heads = 1 : i64}} : (tensor<1x2x8xf32>, tensor<1x2x4xf32>, tensor<1x2x4xf32>, tensor<1x1x3x4xf32>, tensor<1x1x3x4xf32>, tensor<1xi32>, tensor<1xi32>) -> tensor<*xf32>
  return %y : tensor<*xf32>
}

// -----
// CHECK: the model uses operators that are not supported:
// CHECK-NEXT: Add (opset 6), 1 node: 'old'
func.func @model(%x: tensor<4xf32>) -> tensor<*xf32> {
  %y = onnx.node "Add"(%x, %x) attributes {domain = "", version = 6 : i64, node_name = "old", onnx_attributes = {}} : (tensor<4xf32>, tensor<4xf32>) -> tensor<*xf32>
  return %y : tensor<*xf32>
}
