// RUN: not cleave-opt %s -split-input-file --normalize-nodes 2>&1 | FileCheck %s

// A sum over what data select.
// CHECK: node 'sum' (ReduceSum, opset 20): its operand has as many entries as data select (NonZero)
func.func @model(%x: tensor<3x4xf32>, %m: tensor<3xi1>) -> tensor<*xf32> {
  %zero = onnx.Constant dense<0> : tensor<1xi64>
  %nz = onnx.node "NonZero"(%m) attributes {domain = "", version = 20 : i64, node_name = "chosen", onnx_attributes = {}} : (tensor<3xi1>) -> tensor<*xi64>
  %i = onnx.node "Transpose"(%nz) attributes {domain = "", version = 20 : i64, node_name = "turned", onnx_attributes = {perm = array<i64: 1, 0>}} : (tensor<*xi64>) -> tensor<*xi64>
  %rows = onnx.node "GatherND"(%x, %i) attributes {domain = "", version = 20 : i64, node_name = "rows", onnx_attributes = {}} : (tensor<3x4xf32>, tensor<*xi64>) -> tensor<*xf32>
  %z = onnx.node "ReduceSum"(%rows, %zero) attributes {domain = "", version = 20 : i64, node_name = "sum", onnx_attributes = {}} : (tensor<*xf32>, tensor<1xi64>) -> tensor<*xf32>
  return %z : tensor<*xf32>
}

// -----
// How many they are, as a number.
// CHECK: needs to know how many entries data select (NonZero), which only a running step knows
func.func @model(%x: tensor<3x4xf32>, %m: tensor<3xi1>) -> tensor<*xf32> {
  %zero = onnx.Constant dense<0> : tensor<i64>
  %nz = onnx.node "NonZero"(%m) attributes {domain = "", version = 20 : i64, node_name = "chosen", onnx_attributes = {}} : (tensor<3xi1>) -> tensor<*xi64>
  %i = onnx.node "Transpose"(%nz) attributes {domain = "", version = 20 : i64, node_name = "turned", onnx_attributes = {perm = array<i64: 1, 0>}} : (tensor<*xi64>) -> tensor<*xi64>
  %rows = onnx.node "GatherND"(%x, %i) attributes {domain = "", version = 20 : i64, node_name = "rows", onnx_attributes = {}} : (tensor<3x4xf32>, tensor<*xi64>) -> tensor<*xf32>
  %s = onnx.node "Shape"(%rows) attributes {domain = "", version = 20 : i64, node_name = "sizes", onnx_attributes = {}} : (tensor<*xf32>) -> tensor<*xi64>
  %n = onnx.node "Gather"(%s, %zero) attributes {domain = "", version = 20 : i64, node_name = "count", onnx_attributes = {axis = 0 : i64}} : (tensor<*xi64>, tensor<i64>) -> tensor<*xi64>
  %c = onnx.node "Cast"(%n) attributes {domain = "", version = 20 : i64, node_name = "real", onnx_attributes = {to = 1 : i64}} : (tensor<*xi64>) -> tensor<*xf32>
  %z = onnx.node "Mul"(%x, %c) attributes {domain = "", version = 20 : i64, node_name = "mean", onnx_attributes = {}} : (tensor<3x4xf32>, tensor<*xf32>) -> tensor<*xf32>
  return %z : tensor<*xf32>
}

// -----
// And as a size of something else.
// CHECK: node 'part' (Slice, opset 20): it needs to know how many entries data select (NonZero)
func.func @model(%x: tensor<3x4xf32>, %m: tensor<3xi1>) -> tensor<*xf32> {
  %zero = onnx.Constant dense<0> : tensor<1xi64>
  %nz = onnx.node "NonZero"(%m) attributes {domain = "", version = 20 : i64, node_name = "chosen", onnx_attributes = {}} : (tensor<3xi1>) -> tensor<*xi64>
  %i = onnx.node "Transpose"(%nz) attributes {domain = "", version = 20 : i64, node_name = "turned", onnx_attributes = {perm = array<i64: 1, 0>}} : (tensor<*xi64>) -> tensor<*xi64>
  %rows = onnx.node "GatherND"(%x, %i) attributes {domain = "", version = 20 : i64, node_name = "rows", onnx_attributes = {}} : (tensor<3x4xf32>, tensor<*xi64>) -> tensor<*xf32>
  %s = onnx.node "Shape"(%rows) attributes {domain = "", version = 20 : i64, node_name = "sizes", onnx_attributes = {end = 1 : i64}} : (tensor<*xf32>) -> tensor<*xi64>
  %z = onnx.node "Slice"(%x, %zero, %s) attributes {domain = "", version = 20 : i64, node_name = "part", onnx_attributes = {}} : (tensor<3x4xf32>, tensor<1xi64>, tensor<*xi64>) -> tensor<*xf32>
  return %z : tensor<*xf32>
}

// -----
// Two masks.
// CHECK: node 'both' (Add, opset 20): its operands are what different data select (NonZero)
func.func @model(%x: tensor<3x4xf32>, %m: tensor<3xi1>, %o: tensor<3xi1>) -> tensor<*xf32> {
  %nz = onnx.node "NonZero"(%m) attributes {domain = "", version = 20 : i64, node_name = "chosen", onnx_attributes = {}} : (tensor<3xi1>) -> tensor<*xi64>
  %i = onnx.node "Transpose"(%nz) attributes {domain = "", version = 20 : i64, node_name = "turned", onnx_attributes = {perm = array<i64: 1, 0>}} : (tensor<*xi64>) -> tensor<*xi64>
  %rows = onnx.node "GatherND"(%x, %i) attributes {domain = "", version = 20 : i64, node_name = "rows", onnx_attributes = {}} : (tensor<3x4xf32>, tensor<*xi64>) -> tensor<*xf32>
  %nz2 = onnx.node "NonZero"(%o) attributes {domain = "", version = 20 : i64, node_name = "other", onnx_attributes = {}} : (tensor<3xi1>) -> tensor<*xi64>
  %i2 = onnx.node "Transpose"(%nz2) attributes {domain = "", version = 20 : i64, node_name = "turned2", onnx_attributes = {perm = array<i64: 1, 0>}} : (tensor<*xi64>) -> tensor<*xi64>
  %rows2 = onnx.node "GatherND"(%x, %i2) attributes {domain = "", version = 20 : i64, node_name = "rows2", onnx_attributes = {}} : (tensor<3x4xf32>, tensor<*xi64>) -> tensor<*xf32>
  %b = onnx.node "Add"(%rows, %rows2) attributes {domain = "", version = 20 : i64, node_name = "both", onnx_attributes = {}} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
  %z = onnx.node "ScatterND"(%x, %i, %b) attributes {domain = "", version = 20 : i64, node_name = "back", onnx_attributes = {reduction = "add"}} : (tensor<3x4xf32>, tensor<*xi64>, tensor<*xf32>) -> tensor<*xf32>
  return %z : tensor<*xf32>
}

// -----
// Rows that may be named twice are not assigned.
// CHECK: node 'back' (ScatterND, opset 20): it may put several entries that data select (NonZero) at one place
func.func @model(%x: tensor<3x4xf32>, %m: tensor<3x2xi1>) -> tensor<*xf32> {
  %zero = onnx.Constant dense<0> : tensor<i64>
  %one = onnx.Constant dense<1> : tensor<1xi64>
  %nz = onnx.node "NonZero"(%m) attributes {domain = "", version = 20 : i64, node_name = "chosen", onnx_attributes = {}} : (tensor<3x2xi1>) -> tensor<*xi64>
  %t = onnx.node "Transpose"(%nz) attributes {domain = "", version = 20 : i64, node_name = "turned", onnx_attributes = {perm = array<i64: 1, 0>}} : (tensor<*xi64>) -> tensor<*xi64>
  %r = onnx.node "Gather"(%t, %zero) attributes {domain = "", version = 20 : i64, node_name = "column", onnx_attributes = {axis = 1 : i64}} : (tensor<*xi64>, tensor<i64>) -> tensor<*xi64>
  %i = onnx.node "Unsqueeze"(%r, %one) attributes {domain = "", version = 20 : i64, node_name = "index", onnx_attributes = {}} : (tensor<*xi64>, tensor<1xi64>) -> tensor<*xi64>
  %rows = onnx.node "GatherND"(%x, %i) attributes {domain = "", version = 20 : i64, node_name = "rows", onnx_attributes = {}} : (tensor<3x4xf32>, tensor<*xi64>) -> tensor<*xf32>
  %y = onnx.node "Mul"(%rows, %rows) attributes {domain = "", version = 20 : i64, node_name = "twice", onnx_attributes = {}} : (tensor<*xf32>, tensor<*xf32>) -> tensor<*xf32>
  %z = onnx.node "ScatterND"(%x, %i, %y) attributes {domain = "", version = 20 : i64, node_name = "back", onnx_attributes = {}} : (tensor<3x4xf32>, tensor<*xi64>, tensor<*xf32>) -> tensor<*xf32>
  return %z : tensor<*xf32>
}

// -----
// An output of the model.
// CHECK: output '' has as many entries as data select (NonZero)
func.func @model(%x: tensor<3x4xf32>, %m: tensor<3xi1>) -> tensor<*xf32> {
  %nz = onnx.node "NonZero"(%m) attributes {domain = "", version = 20 : i64, node_name = "chosen", onnx_attributes = {}} : (tensor<3xi1>) -> tensor<*xi64>
  %i = onnx.node "Transpose"(%nz) attributes {domain = "", version = 20 : i64, node_name = "turned", onnx_attributes = {perm = array<i64: 1, 0>}} : (tensor<*xi64>) -> tensor<*xi64>
  %rows = onnx.node "GatherND"(%x, %i) attributes {domain = "", version = 20 : i64, node_name = "rows", onnx_attributes = {}} : (tensor<3x4xf32>, tensor<*xi64>) -> tensor<*xf32>
  return %rows : tensor<*xf32>
}
