// RUN: cleave-opt %s -split-input-file --training="recipe={loss: {kind: output}, optimizer: {kind: sgd, lr: 0.1}} microbatches=2 loss-of-batch=1,1,1" | FileCheck %s
// RUN: cleave-opt %s -split-input-file --training="recipe={loss: {kind: output}, optimizer: {kind: sgd, lr: 0.1}} microbatches=2 loss-of-batch=1,1" | FileCheck %s --check-prefix=MET

// Two means with counts of their own and a penalty without samples: the batch's counts are added up ahead.
// CHECK-NOT:   onnx.loss_meets_at
// CHECK-LABEL: func.func @count(%{{.*}} {{.*}}onnx.name = "mask"
// CHECK:         onnx.write @accumulator.loss_count.0
// CHECK-LABEL: func.func @accumulate
// CHECK:         %[[COUNT:.*]] = onnx.read @accumulator.loss_count.0
// CHECK:         onnx.Max %[[COUNT]]
// MET:         onnx.loss_meets_at = "Add"
// MET-NOT:     @count
onnx.param @w : tensor<4xf32> "parameter" {trainable = true}
func.func @model(%x: tensor<2x4xf32> {onnx.name = "x"}, %mask: tensor<2xf32> {onnx.name = "mask"}) -> (tensor<f32> {onnx.name = "loss"}) {
  %w = onnx.read @w : tensor<4xf32>
  %h = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1>, result_indices = array<i64: 0>} : (tensor<2x4xf32>, tensor<4xf32>) -> tensor<2xf32>
  %m = onnx.Mul %h, %mask : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
  %sum = onnx.ReduceSum %m {axes = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  %n = onnx.ReduceSum %mask {axes = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  %one = onnx.Constant dense<1.0> : tensor<f32>
  %bound = onnx.Max %n, %one : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %mean = onnx.Div %sum, %bound : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %all = onnx.ReduceSum %h {axes = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  %squares = onnx.Mul %w, %w : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %penalty = onnx.ReduceSum %squares {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %two = onnx.Add %mean, %all : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %loss = onnx.Add %two, %penalty : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %loss : tensor<f32>
}
