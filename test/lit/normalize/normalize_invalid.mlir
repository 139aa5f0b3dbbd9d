// RUN: not cleave-opt %s --normalize-nodes 2>&1 | FileCheck %s
// RUN: not cleave-opt %s --verify-core 2>&1 | FileCheck %s
// RUN: not cleave-opt %s --bind-dimensions=dims=batch:8 2>&1 | FileCheck %s

// CHECK: error: has no function @model
func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> {
  return %x : tensor<4xf32>
}
