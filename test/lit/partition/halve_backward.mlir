// RUN: cleave-opt %s --build-backward="microbatches=2 pipeline=true" --accumulate-gradients="microbatches=2 pipeline=true" --assign-stages=ranks=0,1 --propagate-shardings --materialize-collectives --recompute --split-stages="ranks=0,1 halves=true" | FileCheck %s

// What two stages send each other has a channel for each size of a message.
// CHECK-LABEL: func.func @forward.0(
// CHECK: dist.send {{.*}}dist.channel = 0 : i64{{.*}} : tensor<2x4xf32>
// CHECK: dist.send {{.*}}dist.channel = 1 : i64{{.*}} : tensor<2xf32>

// A backward pass in two functions: what is computed again for a weight's gradient alone is made by the first, and held
// instead of the two values that it is made of.
// CHECK-LABEL: func.func @backward_input.1(
// CHECK-SAME: -> (tensor<2x4xf32> {place.kept = [[KEPT:[0-9]+]] : i64}) attributes
// CHECK: [[A:%.+]] = onnx.Tanh {{.*}}recomputed = 0
// CHECK: [[B:%.+]] = onnx.Exp {{.*}}recomputed = 0
// CHECK: [[G:%.+]] = onnx.Mul [[A]], [[B]] {{.*}}recomputed = 0
// CHECK: return [[G]] :
// CHECK-LABEL: func.func @backward_weight.1(
// CHECK-SAME: %arg0: tensor<2x4xf32> {place.kept = [[KEPT]] : i64}) attributes
// CHECK-NOT: onnx.Mul
// CHECK: onnx.Contract %arg0
module attributes {dist.mesh = #dist.mesh<"pp=2">, dist.zero_axes = #dist.axes<[]>, dist.batch_axes = #dist.axes<[]>} {
  onnx.param @v : tensor<4x4xf32> "parameter" {trainable = true}
  onnx.param @w : tensor<4x4xf32> "parameter" {trainable = true}
  func.func @model(%x: tensor<2x4xf32> {onnx.name = "x"}) -> (tensor<f32> {onnx.name = "loss_sum"}) {
    %v = onnx.read @v {place.at = #place.at<phase = forward>} : tensor<4x4xf32>
    %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4x4xf32>
    %h = onnx.Contract %x, %v {place.at = #place.at<phase = forward, stage = 0>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %s = onnx.ReduceSum %h {place.at = #place.at<phase = forward, stage = 0>, axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
    %c = onnx.Broadcast %s {place.at = #place.at<phase = forward, stage = 1>, dims = array<i64: 0>, shape = array<i64: 2, 4>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %a = onnx.Tanh %h {place.at = #place.at<phase = forward, stage = 1, segment = 0, recompute = true>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %b = onnx.Exp %c {place.at = #place.at<phase = forward, stage = 1, segment = 0, recompute = true>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %g = onnx.Mul %a, %b {place.at = #place.at<phase = forward, stage = 1, segment = 0, recompute = true>} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %r = onnx.Contract %g, %w {place.at = #place.at<phase = forward, stage = 1, segment = 0>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %sum = onnx.ReduceSum %r {place.at = #place.at<phase = forward, stage = 1>, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
  func.func @evaluate(%x: tensor<2x4xf32> {onnx.name = "x"}) -> (tensor<f32> {onnx.name = "loss"}) {
    %sum = onnx.ReduceSum %x {place.at = #place.at<phase = forward, stage = 1>, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
}
