// RUN: cleave-opt %s --pull-factors | FileCheck %s

// The backward sums of a batch norm with its channels last: one of the gradient, one of its product with the centred
// tensor, one of the centred tensor. Factors of the channels follow.
// CHECK-LABEL: func.func @batch_norm
// CHECK: %[[DY:.*]] = onnx.ReduceSum %arg0 {axes = array<i64: 0, 1, 2>}
// CHECK: %[[P:.*]] = onnx.Mul %arg0, %arg1
// CHECK: %[[DYC:.*]] = onnx.ReduceSum %[[P]] {axes = array<i64: 0, 1, 2>}
// CHECK: %[[SCALE:.*]] = onnx.Mul %[[DYC]], %arg3
// CHECK: %[[RSQRT:.*]] = onnx.Mul %[[DYC]], %arg2
// CHECK: %[[G:.*]] = onnx.Mul %[[DY]], %arg2
// CHECK: %[[GR:.*]] = onnx.Mul %[[G]], %arg3
// CHECK: %[[MEAN:.*]] = onnx.Neg %[[GR]]
// CHECK: %[[V:.*]] = onnx.Exp %[[RSQRT]]
// CHECK: %[[C:.*]] = onnx.ReduceSum %arg1 {axes = array<i64: 0, 1, 2>}
// CHECK: %[[VC:.*]] = onnx.Mul %[[C]], %[[V]]
// CHECK: %[[TWICE:.*]] = onnx.Sum %[[VC]], %[[VC]]
// CHECK: %[[VAR:.*]] = onnx.Neg %[[TWICE]]
// CHECK-NOT: onnx.ReduceSum
// CHECK: return %[[DY]], %[[SCALE]], %[[MEAN]], %[[VAR]]
func.func @batch_norm(%dy: tensor<4x6x6x8xf32>, %c: tensor<4x6x6x8xf32>, %scale: tensor<8xf32>, %r: tensor<8xf32>) -> (tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>) {
  %bs = onnx.Broadcast %scale {shape = array<i64: 4, 6, 6, 8>, dims = array<i64: 3>} : (tensor<8xf32>) -> tensor<4x6x6x8xf32>
  %br = onnx.Broadcast %r {shape = array<i64: 4, 6, 6, 8>, dims = array<i64: 3>} : (tensor<8xf32>) -> tensor<4x6x6x8xf32>
  %0 = onnx.ReduceSum %dy {axes = array<i64: 0, 1, 2>} : (tensor<4x6x6x8xf32>) -> tensor<8xf32>
  %1 = onnx.Mul %c, %br : (tensor<4x6x6x8xf32>, tensor<4x6x6x8xf32>) -> tensor<4x6x6x8xf32>
  %2 = onnx.Mul %dy, %1 : (tensor<4x6x6x8xf32>, tensor<4x6x6x8xf32>) -> tensor<4x6x6x8xf32>
  %3 = onnx.ReduceSum %2 {axes = array<i64: 0, 1, 2>} : (tensor<4x6x6x8xf32>) -> tensor<8xf32>
  %4 = onnx.Mul %dy, %bs : (tensor<4x6x6x8xf32>, tensor<4x6x6x8xf32>) -> tensor<4x6x6x8xf32>
  %5 = onnx.Mul %4, %c : (tensor<4x6x6x8xf32>, tensor<4x6x6x8xf32>) -> tensor<4x6x6x8xf32>
  %6 = onnx.ReduceSum %5 {axes = array<i64: 0, 1, 2>} : (tensor<4x6x6x8xf32>) -> tensor<8xf32>
  %7 = onnx.Mul %4, %br : (tensor<4x6x6x8xf32>, tensor<4x6x6x8xf32>) -> tensor<4x6x6x8xf32>
  %8 = onnx.Neg %7 : (tensor<4x6x6x8xf32>) -> tensor<4x6x6x8xf32>
  %9 = onnx.ReduceSum %8 {axes = array<i64: 0, 1, 2>} : (tensor<4x6x6x8xf32>) -> tensor<8xf32>
  %10 = onnx.Exp %6 : (tensor<8xf32>) -> tensor<8xf32>
  %11 = onnx.Broadcast %10 {shape = array<i64: 4, 6, 6, 8>, dims = array<i64: 3>} : (tensor<8xf32>) -> tensor<4x6x6x8xf32>
  %12 = onnx.Mul %11, %c : (tensor<4x6x6x8xf32>, tensor<4x6x6x8xf32>) -> tensor<4x6x6x8xf32>
  %13 = onnx.Sum %12, %12 : (tensor<4x6x6x8xf32>, tensor<4x6x6x8xf32>) -> tensor<4x6x6x8xf32>
  %14 = onnx.Neg %13 : (tensor<4x6x6x8xf32>) -> tensor<4x6x6x8xf32>
  %15 = onnx.ReduceSum %14 {axes = array<i64: 0, 1, 2>} : (tensor<4x6x6x8xf32>) -> tensor<8xf32>
  return %0, %3, %9, %15 : tensor<8xf32>, tensor<8xf32>, tensor<8xf32>, tensor<8xf32>
}

// A factor of rows stays in a sum of columns, and one of columns in a sum of rows; so does one in 16 bits.
// CHECK-LABEL: func.func @others
// CHECK-COUNT-2: onnx.Mul {{.*}} -> tensor<4x8xf32>
// CHECK: onnx.Mul {{.*}} -> tensor<4x8xbf16>
// CHECK-NOT: onnx.Mul
// CHECK: return
func.func @others(%x: tensor<4x8xf32>, %h: tensor<4x8xbf16>, %r: tensor<4xf32>, %k: tensor<8xf32>) -> (tensor<8xf32>, tensor<4xf32>, tensor<8xbf16>) {
  %br = onnx.Broadcast %r {shape = array<i64: 4, 8>, dims = array<i64: 0>} : (tensor<4xf32>) -> tensor<4x8xf32>
  %bk = onnx.Broadcast %k {shape = array<i64: 4, 8>, dims = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %half = onnx.Constant dense<0.5> : tensor<4x8xbf16>
  %0 = onnx.Mul %x, %br : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = onnx.ReduceSum %0 {axes = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
  %2 = onnx.Mul %x, %bk : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %3 = onnx.ReduceSum %2 {axes = array<i64: 1>} : (tensor<4x8xf32>) -> tensor<4xf32>
  %4 = onnx.Mul %h, %half : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<4x8xbf16>
  %5 = onnx.ReduceSum %4 {axes = array<i64: 0>} : (tensor<4x8xbf16>) -> tensor<8xbf16>
  return %1, %3, %5 : tensor<8xf32>, tensor<4xf32>, tensor<8xbf16>
}

// Some dimensions of a factor are those of the results: it is spread over them.
// CHECK-LABEL: func.func @spread
// CHECK: %[[S:.*]] = onnx.ReduceSum %arg0 {axes = array<i64: 1>} {{.*}} -> tensor<4x8xf32>
// CHECK: %[[B:.*]] = onnx.Broadcast %arg1 {dims = array<i64: 1>, shape = array<i64: 4, 8>}
// CHECK: onnx.Mul %[[S]], %[[B]]
func.func @spread(%x: tensor<4x6x8xf32>, %k: tensor<8xf32>) -> tensor<4x8xf32> {
  %b = onnx.Broadcast %k {shape = array<i64: 4, 6, 8>, dims = array<i64: 2>} : (tensor<8xf32>) -> tensor<4x6x8xf32>
  %0 = onnx.Mul %x, %b : (tensor<4x6x8xf32>, tensor<4x6x8xf32>) -> tensor<4x6x8xf32>
  %1 = onnx.ReduceSum %0 {axes = array<i64: 1>} : (tensor<4x6x8xf32>) -> tensor<4x8xf32>
  return %1 : tensor<4x8xf32>
}
