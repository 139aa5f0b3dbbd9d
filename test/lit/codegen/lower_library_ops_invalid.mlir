// RUN: not cleave-opt %s --lower-library-ops 2>&1 | FileCheck %s

// CHECK: 'onnx.Tanh' op has no command: a kernel should have taken it (FormClusters)
func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = onnx.Tanh %x : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
