// RUN: not cleave-opt %s --split-input-file --verify-partition 2>&1 | FileCheck %s

// CHECK: no axis of mesh dp=2
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = dist.all_reduce %x {axes = ["tp"], reduce = #dist.reduction<sum>} : (tensor<4xf32>) -> tensor<4xf32>
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
// -----
// CHECK: still has 'dist.factors' after partitioning
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = onnx.Tanh %x {dist.factors = #dist.factors<[dp]>} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
// -----
// CHECK: names axis 'dp' twice
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = dist.all_reduce %x {axes = ["dp", "dp"], reduce = #dist.reduction<sum>} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
// -----
// CHECK: has no axes
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = dist.all_reduce %x {axes = [], reduce = #dist.reduction<sum>} : (tensor<4xf32>) -> tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
// -----
// CHECK: has no dimension 3
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  func.func @final(%x: tensor<4xf32>) -> tensor<8xf32> {
    %0 = dist.all_gather %x {axes = ["dp"], dim = 3 : i64} : (tensor<4xf32>) -> tensor<8xf32>
    return %0 : tensor<8xf32>
  }
}
// -----
// CHECK: names a persistent tensor that does not exist: @w
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  func.func @final() -> tensor<4xf32> {
    %0 = onnx.read @w : tensor<4xf32>
    return %0 : tensor<4xf32>
  }
}
// -----
// CHECK: stands in a function of no pipeline rank
module attributes {dist.mesh = #dist.mesh<"pp=2">} {
  func.func @final(%x: tensor<4xf32>) {
    dist.send %x {to = 1 : i64, tag = 0 : i64, why = ""} : tensor<4xf32>
    return
  }
}
// -----
// CHECK: has the peer 7 of 2 pipeline ranks
module attributes {dist.mesh = #dist.mesh<"pp=2">} {
  func.func @forward.0(%x: tensor<4xf32>) attributes {place.program = 0 : i64} {
    dist.send %x {to = 7 : i64, tag = 0 : i64, why = ""} : tensor<4xf32>
    return
  }
}
// -----
// CHECK: is met by no receive of its tag and type on that rank
module attributes {dist.mesh = #dist.mesh<"pp=2">} {
  func.func @forward.0(%x: tensor<4xf32>) attributes {place.program = 0 : i64} {
    dist.send %x {to = 1 : i64, tag = 0 : i64, why = ""} : tensor<4xf32>
    return
  }
}
