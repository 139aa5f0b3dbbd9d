// A flat kernel's range is what its results have, not what the tensors have of which it reads slices.
// RUN: cleave-opt %s --form-clusters --lower-kernels-to-linalg --schedule-kernels | FileCheck %s

// CHECK-LABEL: func.func @final
// CHECK: plan.launch{{.*}}extent = 16 : i64
func.func @final(%x: tensor<8x4xf32>) -> (tensor<4x4xf32> {onnx.name = "y"}) {
  %head = onnx.Slice %x {starts = array<i64: 0, 0>, sizes = array<i64: 4, 4>, steps = array<i64: 1, 1>} : (tensor<8x4xf32>) -> tensor<4x4xf32>
  %tail = onnx.Slice %x {starts = array<i64: 4, 0>, sizes = array<i64: 4, 4>, steps = array<i64: 1, 1>} : (tensor<8x4xf32>) -> tensor<4x4xf32>
  %y = onnx.Mul %head, %tail : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}

// A moving average is summed up before the step that it is part of: it is written with the step, where it lay before.
// CHECK-LABEL: func.func @update
// CHECK: plan.launch{{.*}}inplace = array<i64: 0, 0, 1, 0, 0, 1, 1, 1>
func.func @update(%m: tensor<64xf32>, %w: tensor<64xf32>) -> (tensor<64xf32> {onnx.name = "moved"}, tensor<64xf32> {onnx.name = "stepped"}) {
  %moved = onnx.Mul %m, %m : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %size = onnx.ReduceSum %moved {axes = array<i64: 0>} : (tensor<64xf32>) -> tensor<f32>
  %each = onnx.Broadcast %size {shape = array<i64: 64>, dims = array<i64>} : (tensor<f32>) -> tensor<64xf32>
  %scaled = onnx.Mul %moved, %each : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %stepped = onnx.Sub %w, %scaled : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %moved, %stepped : tensor<64xf32>, tensor<64xf32>
}
