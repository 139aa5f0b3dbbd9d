// RUN: cleave-opt %s --build-backward="microbatches=2 pipeline=true" --accumulate-gradients="microbatches=2 pipeline=true" --assign-stages=ranks=0,1 --propagate-shardings --materialize-collectives --recompute --split-stages="ranks=0,1 halves=true" | FileCheck %s

// What two stages send each other has a channel for each size of a message.
// CHECK-LABEL: func.func @forward.0(
// CHECK: dist.send {{.*}}cleave.channel = 0 : i64{{.*}} : tensor<2x4xf32>
// CHECK: dist.send {{.*}}cleave.channel = 1 : i64{{.*}} : tensor<2xf32>

// A backward pass in two functions: what is computed again for a weight's gradient alone is made by the first, and held
// instead of the two values that it is made of.
// CHECK-LABEL: func.func @backward_input.1(
// CHECK-SAME: -> (tensor<2x4xf32> {cleave.kept = [[KEPT:[0-9]+]] : i64}) attributes
// CHECK: [[A:%.+]] = onnx.Tanh {{.*}}cleave.again
// CHECK: [[B:%.+]] = onnx.Exp {{.*}}cleave.again
// CHECK: [[G:%.+]] = onnx.Mul [[A]], [[B]] {cleave.again
// CHECK: return [[G]] :
// CHECK-LABEL: func.func @backward_weight.1(
// CHECK-SAME: %arg0: tensor<2x4xf32> {cleave.kept = [[KEPT]] : i64}) attributes
// CHECK-NOT: onnx.Mul
// CHECK: onnx.Contract %arg0
module attributes {cleave.mesh = "pp=2", cleave.zero_axes = [], cleave.batch_axes = []} {
  onnx.param @v : tensor<4x4xf32> "parameter" {trainable = true}
  onnx.param @w : tensor<4x4xf32> "parameter" {trainable = true}
  func.func @model(%x: tensor<2x4xf32> {onnx.name = "x"}) -> (tensor<f32> {onnx.name = "loss_sum"}) {
    %v = onnx.read @v {cleave.phase = "forward"} : tensor<4x4xf32>
    %w = onnx.read @w {cleave.phase = "forward"} : tensor<4x4xf32>
    %h = onnx.Contract %x, %v {cleave.phase = "forward", cleave.stage = 0 : i64, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %s = onnx.ReduceSum %h {cleave.phase = "forward", cleave.stage = 0 : i64, axes = array<i64: 1>} : (tensor<2x4xf32>) -> tensor<2xf32>
    %c = onnx.Broadcast %s {cleave.phase = "forward", cleave.stage = 1 : i64, dims = array<i64: 0>, shape = array<i64: 2, 4>} : (tensor<2xf32>) -> tensor<2x4xf32>
    %a = onnx.Tanh %h {cleave.phase = "forward", cleave.stage = 1 : i64, cleave.segment = 0 : i64, cleave.again} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %b = onnx.Exp %c {cleave.phase = "forward", cleave.stage = 1 : i64, cleave.segment = 0 : i64, cleave.again} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %g = onnx.Mul %a, %b {cleave.phase = "forward", cleave.stage = 1 : i64, cleave.segment = 0 : i64, cleave.again} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %r = onnx.Contract %g, %w {cleave.phase = "forward", cleave.stage = 1 : i64, cleave.segment = 0 : i64, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %sum = onnx.ReduceSum %r {cleave.phase = "forward", cleave.stage = 1 : i64, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
  func.func @evaluate(%x: tensor<2x4xf32> {onnx.name = "x"}) -> (tensor<f32> {onnx.name = "loss"}) {
    %sum = onnx.ReduceSum %x {cleave.phase = "forward", cleave.stage = 1 : i64, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
}
