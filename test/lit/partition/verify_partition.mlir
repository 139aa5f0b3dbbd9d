// RUN: not cleave-opt %s --split-input-file --verify-partition 2>&1 | FileCheck %s

// CHECK: no axis of mesh dp=2
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = dist.all_reduce %x {axes = ["tp"], reduce = "sum"} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
// -----
// CHECK: gives 'tensor<4xf32>' where 'tensor<8xf32>' comes out
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = dist.all_gather %x {axes = ["dp"], dim = 0 : i64} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
// -----
// CHECK: but @w lies as [{dp}]: 'tensor<2xf32>'
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  onnx.param @w : tensor<4xf32> "parameter" {trainable = true, sharding = #dist.sharding<"[{dp}]">}
  func.func @final() -> tensor<4xf32> {
    %0 = onnx.read @w : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
// -----
// CHECK: does not divide evenly by 2
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  func.func @final(%x: tensor<3xf32>) -> tensor<1xf32> {
    %0 = dist.own_part %x {axes = ["dp"], dim = 0 : i64} : (tensor<3xf32>) -> tensor<1xf32>
    return %0 : tensor<1xf32>
  }
}
