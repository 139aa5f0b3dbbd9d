// RUN: not cleave-opt %s -split-input-file --normalize-nodes 2>&1 | FileCheck %s

// CHECK: node 'reshape' (Reshape, opset 20): its input 1 must be known once dimensions are bound
func.func @model(%x: tensor<4xf32>, %shape: tensor<2xi64>) -> tensor<*xf32> {
  %r = onnx.node "Reshape"(%x, %shape) attributes {domain = "", version = 20 : i64, node_name = "reshape", onnx_attributes = {}} : (tensor<4xf32>, tensor<2xi64>) -> tensor<*xf32>
  return %r : tensor<*xf32>
}

// -----
// A Loop is written out where its condition is known.
// CHECK: node 'loop' (Loop, opset 20): its input 1 must be known once dimensions are bound
func.func @model(%x: tensor<2xf32>, %go: tensor<i1>) -> tensor<*xf32> {
  %trips = onnx.Constant dense<2> : tensor<i64>
  %r = onnx.node "Loop"(%trips, %go, %x) attributes {domain = "", version = 20 : i64, node_name = "loop", onnx_attributes = {body = 0 : i64}} : (tensor<i64>, tensor<i1>, tensor<2xf32>) -> tensor<*xf32> {
  ^bb0(%i: tensor<i64>, %c: tensor<i1>, %h: tensor<2xf32>):
    onnx.node "yield"(%c, %h) attributes {domain = "cleave", version = 1 : i64, node_name = "", onnx_attributes = {}} : (tensor<i1>, tensor<2xf32>) -> ()
  }
  return %r : tensor<*xf32>
}

// -----
// CHECK: node 'construct' (SequenceConstruct, opset 20): needs its input 1
func.func @model(%x: tensor<2xf32>) -> tensor<*xf32> {
  %none = onnx.none : none
  %s = onnx.node "SequenceConstruct"(%x, %none) attributes {domain = "", version = 20 : i64, node_name = "construct", onnx_attributes = {}} : (tensor<2xf32>, none) -> tensor<*xf32>
  %r = onnx.node "ConcatFromSequence"(%s) attributes {domain = "", version = 20 : i64, node_name = "concat", onnx_attributes = {axis = 0 : i64}} : (tensor<*xf32>) -> tensor<*xf32>
  return %r : tensor<*xf32>
}

// -----
// One bound for all Loops: of 100 times 400 iterations with two nodes each.
// CHECK: node 'inner' (Loop, opset 20): is longer than is written out (65536 nodes)
func.func @model(%x: tensor<2xf32>) -> tensor<*xf32> {
  %outers = onnx.Constant dense<100> : tensor<i64>
  %inners = onnx.Constant dense<400> : tensor<i64>
  %yes = onnx.Constant dense<true> : tensor<i1>
  %r = onnx.node "Loop"(%outers, %yes, %x) attributes {domain = "", version = 20 : i64, node_name = "outer", onnx_attributes = {body = 0 : i64}} : (tensor<i64>, tensor<i1>, tensor<2xf32>) -> tensor<*xf32> {
  ^bb0(%i: tensor<i64>, %c: tensor<i1>, %h: tensor<2xf32>):
    %s = onnx.node "Loop"(%inners, %yes, %h) attributes {domain = "", version = 20 : i64, node_name = "inner", onnx_attributes = {body = 0 : i64}} : (tensor<i64>, tensor<i1>, tensor<2xf32>) -> tensor<*xf32> {
    ^bb0(%j: tensor<i64>, %d: tensor<i1>, %g: tensor<2xf32>):
      %n = onnx.node "Relu"(%g) attributes {domain = "", version = 20 : i64, node_name = "relu", onnx_attributes = {}} : (tensor<2xf32>) -> tensor<*xf32>
      onnx.node "yield"(%d, %n) attributes {domain = "cleave", version = 1 : i64, node_name = "", onnx_attributes = {}} : (tensor<i1>, tensor<*xf32>) -> ()
    }
    onnx.node "yield"(%c, %s) attributes {domain = "cleave", version = 1 : i64, node_name = "", onnx_attributes = {}} : (tensor<i1>, tensor<*xf32>) -> ()
  }
  return %r : tensor<*xf32>
}

// -----
// CHECK: node 'split' (SplitToSequence, opset 20): is longer than is written out (65536 nodes)
func.func @model(%x: tensor<100000xf32>) -> tensor<*xf32> {
  %last = onnx.Constant dense<-1> : tensor<i64>
  %s = onnx.node "SplitToSequence"(%x) attributes {domain = "", version = 20 : i64, node_name = "split", onnx_attributes = {}} : (tensor<100000xf32>) -> tensor<*xf32>
  %r = onnx.node "SequenceAt"(%s, %last) attributes {domain = "", version = 20 : i64, node_name = "at", onnx_attributes = {}} : (tensor<*xf32>, tensor<i64>) -> tensor<*xf32>
  return %r : tensor<*xf32>
}
