// RUN: cleave-opt %s --split-input-file --normalize-nodes --canonicalize --verify-core | FileCheck %s

// Behind its end a sequence keeps its state and gives zeros.
// CHECK-LABEL: func.func @model
// CHECK-SAME:    %[[LENGTHS:[a-z0-9]+]]: tensor<2xi32>
// CHECK:         %[[H0:.*]] = onnx.Tanh
// CHECK:         %[[RUNS0:.*]] = onnx.Greater %[[LENGTHS]]
// CHECK:         onnx.Where %{{.*}}, %[[H0]]
// CHECK:         onnx.Tanh
// CHECK:         onnx.Greater %[[LENGTHS]]
// CHECK:         onnx.Where
func.func @model(%x: tensor<2x2x4xf32>, %w: tensor<1x3x4xf32>, %r: tensor<1x3x3xf32>, %lengths: tensor<2xi32>) -> (tensor<*xf32>, tensor<*xf32>) {
  %none = onnx.none : none
  %y, %h = onnx.node "RNN"(%x, %w, %r, %none, %lengths) attributes {domain = "", version = 17 : i64, node_name = "rnn", onnx_attributes = {direction = "reverse"}} : (tensor<2x2x4xf32>, tensor<1x3x4xf32>, tensor<1x3x3xf32>, none, tensor<2xi32>) -> (tensor<*xf32>, tensor<*xf32>)
  return %y, %h : tensor<*xf32>, tensor<*xf32>
}

// -----

// Whole sequences need no comparison.
// CHECK-LABEL: func.func @model
// CHECK-NOT:     onnx.Where
func.func @model(%x: tensor<2x2x4xf32>, %w: tensor<1x3x4xf32>, %r: tensor<1x3x3xf32>) -> tensor<*xf32> {
  %none = onnx.none : none
  %lengths = onnx.Constant dense<2> : tensor<2xi32>
  %y = onnx.node "RNN"(%x, %w, %r, %none, %lengths) attributes {domain = "", version = 17 : i64, node_name = "rnn", onnx_attributes = {}} : (tensor<2x2x4xf32>, tensor<1x3x4xf32>, tensor<1x3x3xf32>, none, tensor<2xi32>) -> tensor<*xf32>
  return %y : tensor<*xf32>
}
