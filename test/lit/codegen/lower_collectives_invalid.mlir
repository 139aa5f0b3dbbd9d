// RUN: not cleave-opt %s --lower-collectives 2>&1 | FileCheck %s

// CHECK: 'dist.reshard' op is not a collective: it should be gone after MaterializeCollectives
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = dist.reshard %x from <"[{dp}]"> to <"[{}]"> : tensor<4xf32>
    return %y : tensor<4xf32>
  }
}
