// RUN: cleave-opt %s --canonicalize | FileCheck %s

// Ops and reads whose results nobody uses go, with what only they used; writes and results stay.
// CHECK-LABEL: func.func @model
// CHECK-NEXT:    %[[W:.*]] = onnx.read @w
// CHECK-NEXT:    %[[Y:.*]] = onnx.Add %arg0, %[[W]]
// CHECK-NEXT:    onnx.write @w, %[[Y]]
// CHECK-NEXT:    return %[[Y]]
onnx.param @w : tensor<4xf32> "parameter" {trainable = true}
onnx.param @unused : tensor<4xf32> "parameter" {trainable = true}
func.func @model(%x: tensor<4xf32>) -> tensor<4xf32> {
  %u = onnx.read @unused : tensor<4xf32>
  %a = onnx.Mul %x, %u : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %b = onnx.Tanh %a : (tensor<4xf32>) -> tensor<4xf32>
  %w = onnx.read @w : tensor<4xf32>
  %y = onnx.Add %x, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  onnx.write @w, %y : tensor<4xf32>
  return %y : tensor<4xf32>
}
