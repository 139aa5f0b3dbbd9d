// RUN: cleave-opt %s --build-backward="microbatches=2 pipeline=true" --accumulate-gradients="microbatches=2 pipeline=true" --assign-stages=ranks=0,1 --propagate-shardings --materialize-collectives --split-stages=ranks=0,1 --build-routines="microbatches=2 schedule=gpipe" --verify-partition | FileCheck %s
module attributes {dist.mesh = #dist.mesh<"pp=2">, dist.zero_axes = #dist.axes<[]>, dist.batch_axes = #dist.axes<[]>} {
  onnx.param @w : tensor<4x4xf32> "parameter" {trainable = true}
  onnx.param @accumulator.loss_count.0 : tensor<f32> "accumulator" {fill = 0.0 : f64, trainable = false}
  func.func @count(%mask: tensor<2x4xf32> {onnx.name = "mask"}) {
    %n = onnx.ReduceSum %mask {place.at = #place.at<phase = forward>, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
    %before = onnx.read @accumulator.loss_count.0 {place.at = #place.at<phase = update>} : tensor<f32>
    %after = onnx.Add %before, %n {place.at = #place.at<phase = update>} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    onnx.write @accumulator.loss_count.0, %after {place.at = #place.at<phase = update>} : tensor<f32>
    return
  }
  func.func @model(%x: tensor<2x4xf32> {onnx.name = "x"}, %mask: tensor<2x4xf32> {onnx.name = "mask"}) -> (tensor<f32> {onnx.name = "loss_sum"}) {
    %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4x4xf32>
    %y = onnx.Contract %x, %w {place.at = #place.at<phase = forward, stage = 0>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %z = onnx.Mul %y, %mask {place.at = #place.at<phase = forward, stage = 1>} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %sum = onnx.ReduceSum %z {place.at = #place.at<phase = forward, stage = 1>, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
    %all = onnx.read @accumulator.loss_count.0 {place.at = #place.at<phase = forward>} : tensor<f32>
    %one = onnx.Constant {place.at = #place.at<phase = forward>} dense<1.0> : tensor<f32>
    %bound = onnx.Max %all, %one {place.at = #place.at<phase = forward>} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %mean = onnx.Div %sum, %bound {place.at = #place.at<phase = forward, stage = 1>} : (tensor<f32>, tensor<f32>) -> tensor<f32>
    return %mean : tensor<f32>
  }
  func.func @evaluate(%x: tensor<2x4xf32> {onnx.name = "x"}) -> (tensor<f32> {onnx.name = "loss"}) {
    %h = onnx.Tanh %x {place.at = #place.at<phase = forward, stage = 0>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4x4xf32>
    %r = onnx.Contract %h, %w {place.at = #place.at<phase = forward, stage = 1>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xf32>, tensor<4x4xf32>) -> tensor<2x4xf32>
    %sum = onnx.ReduceSum %r {place.at = #place.at<phase = forward, stage = 1>, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
}

// Every rank counts for itself, before its first microbatch, and zeroes its count.
// CHECK: place.routines = [{fragments = [@count.0, @count.0, @forward.0, @forward.0, @backward.0, @backward.0, @update.0], microbatches = array<i64: 0, 1, 0, 1, 0, 1, 0>, name = "step", program = 0 : i64
// CHECK-SAME: {fragments = [@count.1, @count.1, @forward.1
// CHECK: onnx.param @accumulator.loss_count.0 {{.*}}place.programs = array<i64: 0, 1>
// CHECK: func.func @count.0({{.*}}place.program = 0 : i64
// CHECK: func.func @count.1({{.*}}place.program = 1 : i64
// CHECK: onnx.write @accumulator.loss_count.0
// CHECK-LABEL: func.func @forward.1
// CHECK: [[ALL:%.+]] = onnx.read @accumulator.loss_count.0
// CHECK: onnx.Max [[ALL]]
// CHECK-LABEL: func.func @update.0
// CHECK: onnx.write @accumulator.loss_count.0
// CHECK-LABEL: func.func @update.1
// CHECK: onnx.write @accumulator.loss_count.0
