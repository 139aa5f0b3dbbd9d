// RUN: not cleave-opt %s --verify-training 2>&1 | FileCheck %s

// CHECK-DAG: the training phase made no @evaluate
// CHECK-DAG: results must be loss, grad_norm
// CHECK-DAG: 'onnx.Neg' op has no phase in its place.at
// CHECK-DAG: second write of the same tensor
// CHECK-DAG: names @nothing, which is no onnx.param
onnx.param @w : tensor<4xf32> "parameter" {trainable = true}
func.func @final() -> (tensor<4xf32> {onnx.name = "loss"}) {
  %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4xf32>
  %n = onnx.Neg %w : (tensor<4xf32>) -> tensor<4xf32>
  onnx.write @w, %n {place.at = #place.at<phase = update>} : tensor<4xf32>
  onnx.write @w, %w {place.at = #place.at<phase = update>} : tensor<4xf32>
  onnx.write @nothing, %w {place.at = #place.at<phase = update>} : tensor<4xf32>
  return %n : tensor<4xf32>
}
