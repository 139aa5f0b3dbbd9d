// RUN: not cleave-opt %s --split-stages=ranks=0,1 2>&1 | FileCheck %s

// CHECK: has no functions @accumulate and @update: run assign-stages first
module attributes {dist.mesh = #dist.mesh<"pp=2">} {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
}
