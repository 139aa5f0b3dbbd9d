// RUN: cleave-opt %s --build-backward="microbatches=3 pipeline=true" --accumulate-gradients="microbatches=3 pipeline=true" --delay-weights --assign-stages=ranks=0,1 --propagate-shardings --materialize-collectives --split-stages="ranks=0,1 ahead=true" --build-routines="microbatches=3 schedule=pipedream-2bw" --verify-partition | FileCheck %s
// RUN: sed '/loss_weight.*ahead/ s/stage = 1/stage = 0/' %s | not cleave-opt --build-backward="microbatches=3 pipeline=true" --accumulate-gradients="microbatches=3 pipeline=true" --delay-weights --assign-stages=ranks=0,1 --propagate-shardings --materialize-collectives --split-stages="ranks=0,1 ahead=true" 2>&1 | FileCheck %s --check-prefix=EARLY
module attributes {dist.mesh = #dist.mesh<"pp=2">, dist.zero_axes = #dist.axes<[]>, dist.batch_axes = #dist.axes<[]>} {
  onnx.param @a : tensor<4x4xf32> "parameter" {trainable = true}
  onnx.param @b : tensor<4x4xf32> "parameter" {trainable = true}
  func.func @model(%x: tensor<2x4xf32> {onnx.name = "x"}) -> (tensor<f32> {onnx.name = "loss_sum"}, tensor<f32> {onnx.name = "loss_weight"}) {
    %a = onnx.read @a {place.at = #place.at<phase = forward>} : tensor<4x4xf32>
    %y = onnx.Contract %x, %a {place.at = #place.at<phase = forward, stage = 0>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %h = onnx.Tanh %y {place.at = #place.at<phase = forward, stage = 0>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %b = onnx.read @b {place.at = #place.at<phase = forward>} : tensor<4x4xf32>
    %r = onnx.Contract %h, %b {place.at = #place.at<phase = forward, stage = 1>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %sum = onnx.ReduceSum %r {place.at = #place.at<phase = forward, stage = 1>, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
    %n = onnx.ReduceSum %h {place.at = #place.at<phase = forward, stage = 1>, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32> // loss_weight, of what runs ahead where it is of stage 0
    return %sum, %n : tensor<f32>, tensor<f32>
  }
  func.func @evaluate(%x: tensor<2x4xf32> {onnx.name = "x"}) -> (tensor<f32> {onnx.name = "loss"}) {
    %h = onnx.Tanh %x {place.at = #place.at<phase = forward, stage = 0>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %b = onnx.read @b {place.at = #place.at<phase = forward>} : tensor<4x4xf32>
    %r = onnx.Contract %h, %b {place.at = #place.at<phase = forward, stage = 1>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %sum = onnx.ReduceSum %r {place.at = #place.at<phase = forward, stage = 1>, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
}

// A step begins with one forward pass of the first rank done, and does one of the next step before its last backward
// pass; three microbatches that always overlap with the next one need three slots to come around to the first.
// CHECK: place.routines = [{fragments = [@forward.0], microbatches = array<i64: 0>, name = "fill", program = 0 : i64, slots = array<i64: 0>}
// CHECK-SAME: {ahead = array<i64: 4>, fragments = [@forward.0, @backward.0, @forward.0, @backward.0, @forward.0.ahead, @backward.0, @update.0], microbatches = array<i64: 1, 0, 2, 1, 0, 2, 0>, name = "step", program = 0 : i64, slots = array<i64: 1, 0, 2, 1, 0, 2, 0>}
// CHECK-SAME: {fragments = [@forward.0, @backward.0, @forward.0, @backward.0, @backward.0, @update.0], microbatches = array<i64: 1, 0, 2, 1, 2, 0>, name = "drain", program = 0
// CHECK-SAME: {fragments = [], microbatches = array<i64>, name = "fill", program = 1
// CHECK-SAME: {fragments = [@forward.1, @backward.1, @forward.1, @backward.1, @forward.1, @backward.1, @update.1], microbatches = array<i64: 0, 0, 1, 1, 2, 2, 0>, name = "step", program = 1

// What is ahead is the same pass with the newest weights, in the same slots, and meets the same receive.
// CHECK-LABEL: func.func @forward.0(
// CHECK-SAME:  -> (tensor<2x4xf32> {place.kept = [[KEPT:[0-9]+]] : i64})
// CHECK-SAME:  place.region = "step.0", place.slots = 3
// CHECK:       onnx.read @"previous/a"
// CHECK:       dist.send {{.*}}dist.channel = 0 {{.*}}tag = [[TAG:[0-9]+]] : i64, to = 1
// CHECK-LABEL: func.func @forward.0.ahead(
// CHECK-SAME:  -> (tensor<2x4xf32> {place.kept = [[KEPT]] : i64})
// CHECK-SAME:  place.ahead, {{.*}}place.region = "step.0", place.slots = 3
// CHECK:       onnx.read @a
// CHECK:       dist.send {{.*}}dist.channel = 0 {{.*}}tag = [[TAG]] : i64, to = 1
// The last rank is never ahead.
// CHECK-NOT:   @forward.1.ahead

// The results go to the first rank, by messages of their own channel; the last rank waits for nobody.
// CHECK-LABEL: func.func @update.0(
// CHECK-NOT:   dist.all_reduce
// CHECK:       dist.receive {{.*}}dist.channel = 1 : i64, from = 1
// CHECK:       return %{{.+}} : tensor<f32>
// CHECK-LABEL: func.func @update.1(
// CHECK-NOT:   dist.receive
// CHECK:       dist.send {{.*}}dist.channel = 1 {{.*}}to = 0
// CHECK:       return{{$}}

// EARLY: adds to @accumulator.loss_weight in the forward pass of stage 0: a schedule without a flush {{.*}}(1f1b)
