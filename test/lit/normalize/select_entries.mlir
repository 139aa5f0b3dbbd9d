// RUN: cleave-opt %s --split-input-file --normalize-nodes --canonicalize --verify-core | FileCheck %s

// The rows that a mask selects are computed for all its positions; those that it does not select add 0.
// CHECK-LABEL: func.func @model
// CHECK: %[[X:.*]] = onnx.Broadcast %arg0 {dims = array<i64: 0, 2>, shape = array<i64: 3, 2, 4>} : (tensor<3x4xf32>)
// CHECK: %[[R:.*]] = onnx.Reshape %[[X]] {shape = array<i64: 6, 4>}
// CHECK: %[[Y:.*]] = onnx.Contract %[[R]], %arg1
// CHECK: %[[G:.*]] = onnx.Reshape %[[Y]] {shape = array<i64: 3, 2, 4>}
// CHECK: %[[M:.*]] = onnx.Broadcast %arg2 {dims = array<i64: 0, 1>, shape = array<i64: 3, 2, 4>} : (tensor<3x2xi1>)
// CHECK: %[[W:.*]] = onnx.Where %[[M]], %[[G]]
// CHECK: %[[S:.*]] = onnx.ReduceSum %[[W]] {axes = array<i64: 1>}
// CHECK: onnx.Add %arg0, %[[S]]
func.func @model(%x: tensor<3x4xf32>, %w: tensor<4x4xf32>, %m: tensor<3x2xi1>) -> tensor<*xf32> {
  %zero = onnx.Constant dense<0> : tensor<i64>
  %one = onnx.Constant dense<1> : tensor<1xi64>
  %nz = onnx.node "NonZero"(%m) attributes {domain = "", version = 20 : i64, node_name = "chosen", onnx_attributes = {}} : (tensor<3x2xi1>) -> tensor<*xi64>
  %t = onnx.node "Transpose"(%nz) attributes {domain = "", version = 20 : i64, node_name = "turned", onnx_attributes = {perm = array<i64: 1, 0>}} : (tensor<*xi64>) -> tensor<*xi64>
  %r = onnx.node "Gather"(%t, %zero) attributes {domain = "", version = 20 : i64, node_name = "column", onnx_attributes = {axis = 1 : i64}} : (tensor<*xi64>, tensor<i64>) -> tensor<*xi64>
  %i = onnx.node "Unsqueeze"(%r, %one) attributes {domain = "", version = 20 : i64, node_name = "index", onnx_attributes = {}} : (tensor<*xi64>, tensor<1xi64>) -> tensor<*xi64>
  %rows = onnx.node "GatherND"(%x, %i) attributes {domain = "", version = 20 : i64, node_name = "rows", onnx_attributes = {}} : (tensor<3x4xf32>, tensor<*xi64>) -> tensor<*xf32>
  %y = onnx.node "MatMul"(%rows, %w) attributes {domain = "", version = 20 : i64, node_name = "product", onnx_attributes = {}} : (tensor<*xf32>, tensor<4x4xf32>) -> tensor<*xf32>
  %z = onnx.node "ScatterND"(%x, %i, %y) attributes {domain = "", version = 20 : i64, node_name = "back", onnx_attributes = {reduction = "add"}} : (tensor<3x4xf32>, tensor<*xi64>, tensor<*xf32>) -> tensor<*xf32>
  return %z : tensor<*xf32>
}

// -----

// A boolean mask that is assigned to: the others stay. What a selected number is divided by is 1 elsewhere.
// CHECK-LABEL: func.func @model
// CHECK: %[[ONE:.*]] = onnx.Constant dense<1.000000e+00>
// CHECK: %[[D:.*]] = onnx.Where %arg1, %arg0, %[[ONE]]
// CHECK: %[[Q:.*]] = onnx.Div %arg0, %[[D]]
// CHECK: onnx.Where %arg1, %[[Q]], %arg0
func.func @model(%x: tensor<6xf32>, %m: tensor<6xi1>) -> tensor<*xf32> {
  %nz = onnx.node "NonZero"(%m) attributes {domain = "", version = 20 : i64, node_name = "chosen", onnx_attributes = {}} : (tensor<6xi1>) -> tensor<*xi64>
  %i = onnx.node "Transpose"(%nz) attributes {domain = "", version = 20 : i64, node_name = "turned", onnx_attributes = {perm = array<i64: 1, 0>}} : (tensor<*xi64>) -> tensor<*xi64>
  %rows = onnx.node "GatherND"(%x, %i) attributes {domain = "", version = 20 : i64, node_name = "rows", onnx_attributes = {}} : (tensor<6xf32>, tensor<*xi64>) -> tensor<*xf32>
  %q = onnx.node "Div"(%rows, %rows) attributes {domain = "", version = 20 : i64, node_name = "ratio", onnx_attributes = {}} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
  %z = onnx.node "ScatterND"(%x, %i, %q) attributes {domain = "", version = 20 : i64, node_name = "back", onnx_attributes = {}} : (tensor<6xf32>, tensor<*xi64>, tensor<*xf32>) -> tensor<*xf32>
  return %z : tensor<*xf32>
}

// -----

// Sizes that the data do not decide are known.
// CHECK-LABEL: func.func @model
// CHECK: onnx.Where
func.func @model(%x: tensor<3x4xf32>, %m: tensor<3xi1>) -> tensor<*xf32> {
  %minus = onnx.Constant dense<-1> : tensor<1xi64>
  %two = onnx.Constant dense<2> : tensor<1xi64>
  %nz = onnx.node "NonZero"(%m) attributes {domain = "", version = 20 : i64, node_name = "chosen", onnx_attributes = {}} : (tensor<3xi1>) -> tensor<*xi64>
  %i = onnx.node "Transpose"(%nz) attributes {domain = "", version = 20 : i64, node_name = "turned", onnx_attributes = {perm = array<i64: 1, 0>}} : (tensor<*xi64>) -> tensor<*xi64>
  %rows = onnx.node "GatherND"(%x, %i) attributes {domain = "", version = 20 : i64, node_name = "rows", onnx_attributes = {}} : (tensor<3x4xf32>, tensor<*xi64>) -> tensor<*xf32>
  %s = onnx.node "Shape"(%rows) attributes {domain = "", version = 20 : i64, node_name = "sizes", onnx_attributes = {}} : (tensor<*xf32>) -> tensor<*xi64>
  %v = onnx.node "Reshape"(%rows, %s) attributes {domain = "", version = 20 : i64, node_name = "wide", onnx_attributes = {}} : (tensor<*xf32>, tensor<*xi64>) -> tensor<*xf32>
  %z = onnx.node "ScatterND"(%x, %i, %v) attributes {domain = "", version = 20 : i64, node_name = "back", onnx_attributes = {reduction = "add"}} : (tensor<3x4xf32>, tensor<*xi64>, tensor<*xf32>) -> tensor<*xf32>
  return %z : tensor<*xf32>
}
