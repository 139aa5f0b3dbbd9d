// RUN: not cleave-opt %s --recognize-attention=blocks=2 2>&1 | FileCheck %s
// RUN: not cleave-opt %s --raise-attention 2>&1 | FileCheck %s

// CHECK: has no function @model: the normalize phase makes it
func.func @other(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
