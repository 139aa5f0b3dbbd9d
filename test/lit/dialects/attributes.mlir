// RUN: cleave-opt %s | cleave-opt | FileCheck %s
// How a split and a place are printed, and read again.

// CHECK: module attributes {dist.batch_axes = #dist.axes<[dp, fsdp]>, dist.mesh = #dist.mesh<"dp=2,fsdp=2">, dist.zero_axes = #dist.axes<[]>}
module attributes {dist.batch_axes = #dist.axes<[dp, fsdp]>, dist.mesh = #dist.mesh<"dp=2,fsdp=2">, dist.zero_axes = #dist.axes<[]>} {
  func.func @f(%x: tensor<4x8xf32> {onnx.name = "x", place.kept = 3 : i64}) attributes {place.program = 1 : i64} {
    // CHECK: onnx.Neg %{{.*}} {dist.factors = #dist.factors<[dp, fsdp], []>, place.at = #place.at<phase = forward, stage = 1, origin = 17, segment = 2, recompute = true>}
    %a = onnx.Neg %x {dist.factors = #dist.factors<[dp, fsdp], []>, place.at = #place.at<phase = forward, stage = 1, origin = 17, segment = 2, recompute = true>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    // CHECK: onnx.Neg %{{.*}} {dist.factors = #dist.factors<[], [tp] partial [dp]>, place.at = #place.at<phase = backward, recomputed = 2>}
    %b = onnx.Neg %a {dist.factors = #dist.factors<[], [tp] partial [dp]>, place.at = #place.at<phase = backward, recomputed = 2>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    // CHECK: onnx.Neg %{{.*}} {dist.factors = #dist.factors<>}
    %c = onnx.Neg %b {dist.factors = #dist.factors<>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return
  }
}
