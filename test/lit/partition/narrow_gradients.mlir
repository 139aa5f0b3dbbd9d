// RUN: cleave-opt %s --build-backward="microbatches=2 pipeline=true" --accumulate-gradients="microbatches=2 pipeline=true" --assign-stages=ranks=0,1 --propagate-shardings --materialize-collectives --split-stages=ranks=0,1 | FileCheck %s

// The product before the border reads its gradient in 16 bits: the stage behind it sends it so.
module attributes {cleave.mesh = "pp=2", cleave.zero_axes = [], cleave.batch_axes = []} {
  onnx.param @w : tensor<4x4xbf16> "parameter" {trainable = true}
  func.func @model(%x: tensor<2x4xbf16> {onnx.name = "x"}, %mask: tensor<2x4xf32> {onnx.name = "mask"}) -> (tensor<f32> {onnx.name = "loss_sum"}) {
    %w = onnx.read @w {cleave.phase = "forward"} : tensor<4x4xbf16>
    %y = onnx.Contract %x, %w {cleave.phase = "forward", cleave.stage = 0 : i64, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x4xbf16>, tensor<4x4xbf16>) -> tensor<2x4xbf16>
    %wide = onnx.Cast %y {cleave.phase = "forward", cleave.stage = 0 : i64, to = f32} : (tensor<2x4xbf16>) -> tensor<2x4xf32>
    %h = onnx.Tanh %wide {cleave.phase = "forward", cleave.stage = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %z = onnx.Mul %h, %mask {cleave.phase = "forward", cleave.stage = 1 : i64} : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    %sum = onnx.ReduceSum %z {cleave.phase = "forward", cleave.stage = 1 : i64, axes = array<i64: 0, 1>} : (tensor<2x4xf32>) -> tensor<f32>
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
