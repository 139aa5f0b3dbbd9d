// RUN: cleave-opt %s --elide-collectives | FileCheck %s

module attributes {cleave.mesh = "dp=2,tp=2,one=1"} {
  // CHECK-LABEL: func.func @undone
  // CHECK-NEXT:    return %arg0
  func.func @undone(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = dist.all_gather %x {axes = ["tp"], dim = 0 : i64} : (tensor<4xf32>) -> tensor<8xf32>
    %1 = dist.own_part %0 {axes = ["tp"], dim = 0 : i64} : (tensor<8xf32>) -> tensor<4xf32>
    %2 = dist.all_reduce %1 {axes = ["one"], reduce = "sum"} : (tensor<4xf32>) -> tensor<4xf32>
    return %2 : tensor<4xf32>
  }
  // CHECK-LABEL: func.func @repeated
  // CHECK-NEXT:    onnx.Broadcast %arg0 {cleave.phase = "backward", dims = array<i64: 1>, shape = array<i64: 4, 3>} : (tensor<3xf32>) -> tensor<4x3xf32>
  // CHECK-NEXT:    return
  func.func @repeated(%x: tensor<3xf32>) -> tensor<4x3xf32> {
    %0 = onnx.Broadcast %x {cleave.phase = "backward", dims = array<i64: 1>, shape = array<i64: 8, 3>} : (tensor<3xf32>) -> tensor<8x3xf32>
    %1 = dist.own_part %0 {axes = ["dp"], dim = 0 : i64} : (tensor<8x3xf32>) -> tensor<4x3xf32>
    return %1 : tensor<4x3xf32>
  }
  // A part of what is not repeated.
  // CHECK-LABEL: func.func @own
  // CHECK:         dist.own_part
  func.func @own(%x: tensor<8xf32>) -> tensor<4x3xf32> {
    %0 = onnx.Broadcast %x {dims = array<i64: 0>, shape = array<i64: 8, 3>} : (tensor<8xf32>) -> tensor<8x3xf32>
    %1 = dist.own_part %0 {axes = ["dp"], dim = 0 : i64} : (tensor<8x3xf32>) -> tensor<4x3xf32>
    return %1 : tensor<4x3xf32>
  }
  // CHECK-LABEL: func.func @kept
  // CHECK:         dist.all_gather
  // CHECK:         dist.own_part
  func.func @kept(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = dist.all_gather %x {axes = ["tp"], dim = 0 : i64} : (tensor<4xf32>) -> tensor<8xf32>
    %1 = dist.own_part %0 {axes = ["dp"], dim = 0 : i64} : (tensor<8xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
  // CHECK-LABEL: func.func @joined
  // CHECK-NEXT:    dist.all_reduce %arg0 {axes = ["dp", "tp"]
  // CHECK-NEXT:    return
  func.func @joined(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = dist.all_reduce %x {axes = ["tp"], reduce = "sum"} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = dist.all_reduce %0 {axes = ["dp"], reduce = "sum"} : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
}
