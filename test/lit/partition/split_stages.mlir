// RUN: cleave-opt %s --build-backward="microbatches=2 pipeline=true" --accumulate-gradients="microbatches=2 pipeline=true" --assign-stages=ranks=0,1 --propagate-shardings --materialize-collectives --split-stages=ranks=0,1 --build-routines="microbatches=2 schedule=gpipe" --verify-partition | FileCheck %s
module attributes {dist.mesh = #dist.mesh<"pp=2">, dist.zero_axes = #dist.axes<[]>, dist.batch_axes = #dist.axes<[]>} {
  onnx.param @w : tensor<4x4xf32> "parameter" {trainable = true}
  func.func @model(%x: tensor<2x4xf32> {onnx.name = "x"}, %mask: tensor<2x4xf32> {onnx.name = "mask"}) -> (tensor<f32> {onnx.name = "loss_sum"}) {
    %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4x4xf32>
    %y = onnx.Contract %x, %w {place.at = #place.at<phase = forward, stage = 0>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %h = onnx.Tanh %y {place.at = #place.at<phase = forward, stage = 0>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %m = onnx.Abs %mask {place.at = #place.at<phase = forward, stage = 0>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %z = onnx.Mul %h, %m {place.at = #place.at<phase = forward, stage = 1>} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %r = onnx.Contract %z, %w {place.at = #place.at<phase = forward, stage = 1>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %sum = onnx.ReduceSum %r {place.at = #place.at<phase = forward, stage = 1>, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
  func.func @evaluate(%x: tensor<2x4xf32> {onnx.name = "x"}) -> (tensor<f32> {onnx.name = "loss"}) {
    %h = onnx.Tanh %x {place.at = #place.at<phase = forward, stage = 0>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4x4xf32>
    %r = onnx.Contract %h, %w {place.at = #place.at<phase = forward, stage = 1>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %sum = onnx.ReduceSum %r {place.at = #place.at<phase = forward, stage = 1>, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
}

// What belongs to no stage (the mask) is computed where it is read; @w is used by both stages, each adds up its own part
// of the gradient.
// CHECK: place.routines = [{fragments = [@forward.0, @forward.0, @backward.0, @backward.0, @update.0], microbatches = array<i64: 0, 1, 0, 1, 0>, name = "step", program = 0 : i64, slots = array<i64: 0, 1, 0, 1, 0>}
// CHECK: onnx.param @w {{.*}}place.programs = array<i64: 0, 1>
// CHECK: onnx.param @"accumulator/w" {{.*}}place.programs = array<i64: 1>
// CHECK: onnx.param @"accumulator/w@rank0" {{.*}}place.programs = array<i64: 0>

// CHECK-LABEL: func.func @forward.0
// CHECK-SAME: -> (tensor<2x4xf32> {place.kept = [[KEPT:[0-9]+]] : i64}) attributes {place.program = 0 : i64, place.region = "step.0", place.slots = 2 : i64}
// CHECK-NOT: onnx.Abs
// CHECK: [[H:%.+]] = onnx.Tanh
// CHECK-NEXT: dist.send [[H]] {{.*}}dist.channel = 0 : i64, {{.*}}place.at = #place.at<phase = forward>, tag = 0 : i64, to = 1 : i64
// CHECK-NEXT: return [[H]]

// CHECK-LABEL: func.func @backward.0
// CHECK-SAME: %arg0: tensor<2x4xf32> {place.kept = [[KEPT]] : i64}
// CHECK: dist.receive {{.*}}dist.channel = 0 : i64, from = 1 : i64, {{.*}}tag = 1 : i64
// CHECK: [[OLD:%.+]] = onnx.read @"accumulator/w@rank0"
// CHECK: [[NEW:%.+]] = onnx.Add [[OLD]]
// CHECK: onnx.write @"accumulator/w@rank0", [[NEW]]

// CHECK-LABEL: func.func @forward.1
// CHECK: dist.receive {{.*}}tag = 0
// CHECK: onnx.Abs
// CHECK: onnx.write @accumulator.loss_sum

// CHECK-LABEL: func.func @backward.1
// CHECK: [[DH:%.+]] = onnx.Mul {{.*}}phase = backward
// CHECK-NEXT: dist.send [[DH]] {{.*}}tag = 1
// CHECK: onnx.write @"accumulator/w",

// The loss and the two parts of the gradient, in one order on both ranks; equal sums in one order of terms.
// CHECK-LABEL: func.func @update.0
// CHECK: dist.all_reduce {{.*}}axes = ["pp"], dist.order = [[LOSS:[0-9]+]]
// CHECK: [[OWN:%.+]] = onnx.read @"accumulator/w@rank0"
// CHECK: dist.send [[OWN]] {{.*}}tag = [[A:[0-9]+]] : i64, to = 1
// CHECK: [[OTHER:%.+]] = dist.receive {{.*}}from = 1 : i64, {{.*}}tag = [[B:[0-9]+]]
// CHECK: onnx.Sum [[OWN]], [[OTHER]]
// CHECK-LABEL: func.func @update.1
// CHECK: dist.all_reduce {{.*}}axes = ["pp"], dist.order = [[LOSS]]
// CHECK: [[FIRST:%.+]] = dist.receive {{.*}}from = 0 : i64, {{.*}}tag = [[A]]
// CHECK: [[SECOND:%.+]] = onnx.read @"accumulator/w"
// CHECK: dist.send [[SECOND]] {{.*}}tag = [[B]] : i64, to = 0
// CHECK: onnx.Sum [[FIRST]], [[SECOND]]

// CHECK-LABEL: func.func @evaluate.0
// CHECK: dist.all_reduce {{.*}}axes = ["pp"]
// CHECK-LABEL: func.func @evaluate.1
// CHECK: onnx.ReduceSum
// CHECK: dist.all_reduce {{.*}}axes = ["pp"]
