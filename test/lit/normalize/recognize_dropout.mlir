// RUN: cleave-opt %s --split-input-file --recognize-dropout --canonicalize | FileCheck %s
// RUN: cleave-opt %s --split-input-file --recognize-dropout=dropout=0 --canonicalize | FileCheck %s --check-prefix=OFF
// RUN: cleave-opt %s --split-input-file --recognize-dropout=dropout=0.5 --canonicalize | FileCheck %s --check-prefix=RATE

// Channels: the mask is divided by its probability, and repeated.
// CHECK-LABEL: func.func @model
// CHECK-DAG: %[[U:.*]] = onnx.RandomUniform
// CHECK-DAG: %[[M:.*]] = onnx.Less %[[U]]
// CHECK: onnx.Mul %arg0, %{{.*}} {onnx.dropout}
// OFF-LABEL: func.func @model
// OFF-NEXT: return %arg0
// RATE-LABEL: func.func @model
// RATE: onnx.Constant dense<5.000000e-01>
// RATE: onnx.Less
// RATE: onnx.Mul %arg0, %{{.*}} {onnx.dropout}
func.func @model(%x: tensor<4x3x2xf32>, %key: tensor<2xi64> {onnx.host = "step"}) -> tensor<4x3x2xf32> {
  %p = onnx.Constant dense<0.8> : tensor<4x3x1xf32>
  %u = onnx.RandomUniform %key {stream = 0 : i64, type = tensor<4x3x1xf32>} : (tensor<2xi64>) -> tensor<4x3x1xf32>
  %m = onnx.Less %u, %p : (tensor<4x3x1xf32>, tensor<4x3x1xf32>) -> tensor<4x3x1xi1>
  %c = onnx.Cast %m {to = f32} : (tensor<4x3x1xi1>) -> tensor<4x3x1xf32>
  %d = onnx.Div %c, %p : (tensor<4x3x1xf32>, tensor<4x3x1xf32>) -> tensor<4x3x1xf32>
  %r = onnx.Reshape %d {shape = array<i64: 4, 3>} : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
  %b = onnx.Broadcast %r {shape = array<i64: 4, 3, 2>, dims = array<i64: 0, 1>} : (tensor<4x3xf32>) -> tensor<4x3x2xf32>
  %y = onnx.Mul %x, %b : (tensor<4x3x2xf32>, tensor<4x3x2xf32>) -> tensor<4x3x2xf32>
  return %y : tensor<4x3x2xf32>
}

// -----

// A mask that does not keep the mean is a doubt, and stays.
// CHECK: module attributes {onnx.doubts = [{{.*}}text = "'drop': a random mask that is no dropout
// CHECK: onnx.Where
// CHECK-NOT: onnx.dropout}
// OFF-LABEL: func.func @model
// OFF: onnx.Where
func.func @model(%x: tensor<4xf32>, %key: tensor<2xi64> {onnx.host = "step"}) -> tensor<4xf32> {
  %p = onnx.Constant dense<0.8> : tensor<4xf32>
  %z = onnx.Constant dense<0.0> : tensor<4xf32>
  %u = onnx.RandomUniform %key {stream = 0 : i64, type = tensor<4xf32>} : (tensor<2xi64>) -> tensor<4xf32>
  %m = onnx.Less %u, %p : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1> loc("drop")
  %y = onnx.Where %m, %x, %z : (tensor<4xi1>, tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
