// RUN: cleave-opt %s --build-backward="microbatches=2 pipeline=true" --accumulate-gradients="microbatches=2 pipeline=true" --assign-stages=ranks=0,1 --propagate-shardings --materialize-collectives --split-stages=ranks=0,1 --build-routines="microbatches=2 schedule=gpipe" --verify-partition | FileCheck %s
module attributes {cleave.mesh = "pp=2", cleave.zero_axes = [], cleave.batch_axes = []} {
  onnx.param @w : tensor<4x4xf32> "parameter" {trainable = true}
  func.func @model(%x: tensor<2x4xf32> {onnx.name = "x"}, %mask: tensor<2x4xf32> {onnx.name = "mask"}) -> (tensor<f32> {onnx.name = "loss_sum"}) {
    %w = onnx.read @w {cleave.phase = "forward"} : tensor<4x4xf32>
    %y = onnx.Contract %x, %w {cleave.phase = "forward", cleave.stage = 0 : i64, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %h = onnx.Tanh %y {cleave.phase = "forward", cleave.stage = 0 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %m = onnx.Abs %mask {cleave.phase = "forward", cleave.stage = 0 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %z = onnx.Mul %h, %m {cleave.phase = "forward", cleave.stage = 1 : i64} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %r = onnx.Contract %z, %w {cleave.phase = "forward", cleave.stage = 1 : i64, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %sum = onnx.ReduceSum %r {cleave.phase = "forward", cleave.stage = 1 : i64, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
  func.func @evaluate(%x: tensor<2x4xf32> {onnx.name = "x"}) -> (tensor<f32> {onnx.name = "loss"}) {
    %h = onnx.Tanh %x {cleave.phase = "forward", cleave.stage = 0 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %w = onnx.read @w {cleave.phase = "forward"} : tensor<4x4xf32>
    %r = onnx.Contract %h, %w {cleave.phase = "forward", cleave.stage = 1 : i64, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %sum = onnx.ReduceSum %r {cleave.phase = "forward", cleave.stage = 1 : i64, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
}

// What belongs to no stage (the mask) is computed where it is read; @w is used by both stages, each adds up its own part
// of the gradient.
// CHECK: cleave.routines = [{fragments = [@forward.0, @forward.0, @backward.0, @backward.0, @update.0], microbatches = array<i64: 0, 1, 0, 1, 0>, name = "step", program = 0 : i64, slots = array<i64: 0, 1, 0, 1, 0>}
// CHECK: onnx.param @w {{.*}}cleave.programs = array<i64: 0, 1>
// CHECK: onnx.param @"accumulator/w" {{.*}}cleave.programs = array<i64: 1>
// CHECK: onnx.param @"accumulator/w@rank0" {{.*}}cleave.programs = array<i64: 0>

// CHECK-LABEL: func.func @forward.0
// CHECK-SAME: -> (tensor<2x4xf32> {cleave.kept = [[KEPT:[0-9]+]] : i64}) attributes {cleave.program = 0 : i64, cleave.region = "step.0", cleave.slots = 2 : i64}
// CHECK-NOT: onnx.Abs
// CHECK: [[H:%.+]] = onnx.Tanh
// CHECK-NEXT: dist.send [[H]] {cleave.channel = 0 : i64, cleave.phase = "forward", tag = 0 : i64, to = 1 : i64
// CHECK-NEXT: return [[H]]

// CHECK-LABEL: func.func @backward.0
// CHECK-SAME: %arg0: tensor<2x4xf32> {cleave.kept = [[KEPT]] : i64}
// CHECK: dist.receive {cleave.channel = 0 : i64, cleave.phase = "backward", from = 1 : i64, tag = 1 : i64
// CHECK: [[OLD:%.+]] = onnx.read @"accumulator/w@rank0"
// CHECK: [[NEW:%.+]] = onnx.Add [[OLD]]
// CHECK: onnx.write @"accumulator/w@rank0", [[NEW]]

// CHECK-LABEL: func.func @forward.1
// CHECK: dist.receive {{.*}}tag = 0
// CHECK: onnx.Abs
// CHECK: onnx.write @accumulator.loss_sum

// CHECK-LABEL: func.func @backward.1
// CHECK: [[DH:%.+]] = onnx.Mul {{.*}}"backward"
// CHECK-NEXT: dist.send [[DH]] {{.*}}tag = 1
// CHECK: onnx.write @"accumulator/w",

// The loss and the two parts of the gradient, in one order on both ranks; equal sums in one order of terms.
// CHECK-LABEL: func.func @update.0
// CHECK: dist.all_reduce {{.*}}axes = ["pp"], cleave.order = [[LOSS:[0-9]+]]
// CHECK: [[OWN:%.+]] = onnx.read @"accumulator/w@rank0"
// CHECK: dist.send [[OWN]] {{.*}}tag = [[A:[0-9]+]] : i64, to = 1
// CHECK: [[OTHER:%.+]] = dist.receive {{.*}}from = 1 : i64, tag = [[B:[0-9]+]]
// CHECK: onnx.Sum [[OWN]], [[OTHER]]
// CHECK-LABEL: func.func @update.1
// CHECK: dist.all_reduce {{.*}}axes = ["pp"], cleave.order = [[LOSS]]
// CHECK: [[FIRST:%.+]] = dist.receive {{.*}}from = 0 : i64, tag = [[A]]
// CHECK: [[SECOND:%.+]] = onnx.read @"accumulator/w"
// CHECK: dist.send [[SECOND]] {{.*}}tag = [[B]] : i64, to = 0
// CHECK: onnx.Sum [[FIRST]], [[SECOND]]

// CHECK-LABEL: func.func @evaluate.0
// CHECK: dist.all_reduce {{.*}}axes = ["pp"]
// CHECK-LABEL: func.func @evaluate.1
// CHECK: onnx.ReduceSum
// CHECK: dist.all_reduce {{.*}}axes = ["pp"]
