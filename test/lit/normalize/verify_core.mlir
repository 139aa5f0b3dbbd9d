// RUN: not cleave-opt %s --verify-core 2>&1 | FileCheck %s

// CHECK: 'onnx.node' op is not a core op: nothing of the kind may be left after normalize
func.func @model(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = onnx.node "Relu"(%x) attributes {domain = "", version = 20 : i64, node_name = "relu", onnx_attributes = {}} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
