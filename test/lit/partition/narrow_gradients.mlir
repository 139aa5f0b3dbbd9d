// RUN: cleave-opt %s --build-backward="microbatches=2 pipeline=true" --accumulate-gradients="microbatches=2 pipeline=true" --assign-stages=ranks=0,1 --propagate-shardings --materialize-collectives --split-stages=ranks=0,1 | FileCheck %s

// The product before the border reads its gradient in 16 bits: the stage behind it sends it so.
module attributes {dist.mesh = #dist.mesh<"pp=2">, dist.zero_axes = #dist.axes<[]>, dist.batch_axes = #dist.axes<[]>} {
  onnx.param @w : tensor<4x4xbf16> "parameter" {trainable = true}
  func.func @model(%x: tensor<2x4xbf16> {onnx.name = "x"}, %mask: tensor<2x4xf32> {onnx.name = "mask"}) -> (tensor<f32> {onnx.name = "loss_sum"}) {
    %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4x4xbf16>
    %y = onnx.Contract %x, %w {place.at = #place.at<phase = forward, stage = 0>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xbf16>, tensor<4x4xbf16>) -> tensor<2x4xbf16>
    %wide = onnx.Cast %y {place.at = #place.at<phase = forward, stage = 0>, to = f32} : (tensor<2x4xbf16>) -> tensor<2x4xf32>
    %h = onnx.Tanh %wide {place.at = #place.at<phase = forward, stage = 1>} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %z = onnx.Mul %h, %mask {place.at = #place.at<phase = forward, stage = 1>} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %sum = onnx.ReduceSum %z {place.at = #place.at<phase = forward, stage = 1>, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
    return %sum : tensor<f32>
  }
}

// CHECK-LABEL: func.func @backward.0
// CHECK: [[DY:%.+]] = dist.receive {{.*}} : tensor<2x4xbf16>
// CHECK-NOT: onnx.Cast
// CHECK: onnx.Contract {{.*}}[[DY]]
// CHECK-LABEL: func.func @backward.1
// CHECK: [[NARROW:%.+]] = onnx.Cast {{.*}}to = bf16
// CHECK-NEXT: dist.send [[NARROW]]
