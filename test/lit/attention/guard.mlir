// A softmax whose rows without any key are set to 0 afterwards divides 0 by 1 in them: no NaN is left whose gradient
// would be NaN. One that nobody guards stays as it is.
// RUN: cleave-opt %s --guard-empty-rows | FileCheck %s

// CHECK-LABEL: func.func @guarded
// CHECK: %[[MAX:.*]] = onnx.ReduceMax %arg0
// CHECK: %[[LOWEST:.*]] = onnx.Constant {{.*}}dense<-1.70141173E+38>
// CHECK: %[[EMPTY:.*]] = onnx.LessOrEqual %[[MAX]], %[[LOWEST]]
// CHECK: %[[HAS:.*]] = onnx.Not %[[EMPTY]]
// CHECK: %[[SHIFT:.*]] = onnx.Where %[[HAS]], %[[MAX]], %{{.*}}
// CHECK: onnx.StopGradient %[[SHIFT]]
// CHECK: %[[SUM:.*]] = onnx.ReduceSum
// CHECK: %[[DIVISOR:.*]] = onnx.Where %[[EMPTY]], %{{.*}}, %[[SUM]]
// CHECK: onnx.Broadcast %[[DIVISOR]]
func.func @guarded(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %m = onnx.ReduceMax %x {axes = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2xf32>
  %n = onnx.StopGradient %m : (tensor<2xf32>) -> tensor<2xf32>
  %mb = onnx.Broadcast %n {shape = array<i64: 2, 3>, dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x3xf32>
  %d = onnx.Sub %x, %mb : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %e = onnx.Exp %d : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %s = onnx.ReduceSum %e {axes = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2xf32>
  %sb = onnx.Broadcast %s {shape = array<i64: 2, 3>, dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x3xf32>
  %p = onnx.Div %e, %sb : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %no = onnx.IsNaN %p : (tensor<2x3xf32>) -> tensor<2x3xi1>
  %zero = onnx.Constant dense<0.0> : tensor<2x3xf32>
  %q = onnx.Where %no, %zero, %p : (tensor<2x3xi1>, tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return %q : tensor<2x3xf32>
}

// CHECK-LABEL: func.func @plain
// CHECK-NOT: onnx.Where
func.func @plain(%x: tensor<2x3xf32>) -> tensor<2x3xf32> {
  %m = onnx.ReduceMax %x {axes = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2xf32>
  %mb = onnx.Broadcast %m {shape = array<i64: 2, 3>, dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x3xf32>
  %d = onnx.Sub %x, %mb : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  %e = onnx.Exp %d : (tensor<2x3xf32>) -> tensor<2x3xf32>
  %s = onnx.ReduceSum %e {axes = array<i64: 1>} : (tensor<2x3xf32>) -> tensor<2xf32>
  %sb = onnx.Broadcast %s {shape = array<i64: 2, 3>, dims = array<i64: 0>} : (tensor<2xf32>) -> tensor<2x3xf32>
  %p = onnx.Div %e, %sb : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x3xf32>
  return %p : tensor<2x3xf32>
}
