// RUN: cleave-opt %s --build-backward --recompute | FileCheck %s

// The values between the cuts are computed again in the backward phase, from the values at the cuts.
// CHECK-LABEL: func.func @model
// CHECK-COUNT-6: onnx.Sin {{.*}}cleave.phase = "forward"
// CHECK:         cleave.phase = "backward"
// CHECK:         onnx.Sin {{.*}}cleave.phase = "backward"
onnx.param @w : tensor<64xf32> "parameter" {trainable = true}
func.func @model() -> (tensor<f32> {onnx.name = "loss_sum"}) {
  %w = onnx.read @w : tensor<64xf32>
  %0 = onnx.Sin %w {cleave.phase = "forward"} : (tensor<64xf32>) -> tensor<64xf32>
  %1 = onnx.Sin %0 {cleave.phase = "forward"} : (tensor<64xf32>) -> tensor<64xf32>
  %2 = onnx.Sin %1 {cleave.phase = "forward"} : (tensor<64xf32>) -> tensor<64xf32>
  %3 = onnx.Sin %2 {cleave.phase = "forward"} : (tensor<64xf32>) -> tensor<64xf32>
  %4 = onnx.Sin %3 {cleave.phase = "forward"} : (tensor<64xf32>) -> tensor<64xf32>
  %5 = onnx.Sin %4 {cleave.phase = "forward"} : (tensor<64xf32>) -> tensor<64xf32>
  %sum = onnx.ReduceSum %5 {axes = array<i64: 0>, cleave.phase = "forward"} : (tensor<64xf32>) -> tensor<f32>
  return %sum : tensor<f32>
}
