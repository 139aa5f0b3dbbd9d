// RUN: cleave-opt %s --split-input-file --verify-diagnostics --resize-batch="exported=4 samples=2" | FileCheck %s

// Samples in blocks of 3 after a reshape, a mask repeated for each of them, dropout's random numbers.
// CHECK-LABEL: func.func @model
// CHECK-SAME: %{{.*}}: tensor<2x3x8xf32> {onnx.name = "x"}, %{{.*}}: tensor<4xf32> {onnx.host
// CHECK-DAG: onnx.Constant dense<{{.*}}> : tensor<2x3x1xf32>
// CHECK-DAG: onnx.Broadcast {{.*}}shape = array<i64: 2, 3, 8>{{.*}}-> tensor<2x3x8xf32>
// CHECK-DAG: onnx.RandomUniform {{.*}} -> tensor<2x3x8xf32>
// CHECK: onnx.Reshape {{.*}} {shape = array<i64: 6, 8>} : (tensor<2x3x8xf32>) -> tensor<6x8xf32>
// CHECK: onnx.Contract {{.*}} -> tensor<6x5xf32>
// CHECK: onnx.Transpose {{.*}} -> tensor<5x6xf32>
// CHECK: onnx.Reshape {{.*}} {shape = array<i64: 5, 2, 3>}
// CHECK: return {{.*}} : tensor<5x2x3xf32>
onnx.param @w : tensor<8x5xf32> "parameter" {trainable = true}
func.func @model(%x: tensor<4x3x8xf32> {onnx.name = "x"}, %key: tensor<4xf32> {onnx.host = "host"}, %k: tensor<2xi64> {onnx.host = "step"}) -> tensor<5x4x3xf32> {
  %w = onnx.read @w : tensor<8x5xf32>
  %c = onnx.Constant dense<[[[1.0], [2.0], [3.0]], [[1.0], [2.0], [3.0]], [[1.0], [2.0], [3.0]], [[1.0], [2.0], [3.0]]]> : tensor<4x3x1xf32>
  %r = onnx.Reshape %c {shape = array<i64: 4, 3>} : (tensor<4x3x1xf32>) -> tensor<4x3xf32>
  %m = onnx.Broadcast %r {shape = array<i64: 4, 3, 8>, dims = array<i64: 0, 1>} : (tensor<4x3xf32>) -> tensor<4x3x8xf32>
  %u = onnx.RandomUniform %k {type = tensor<4x3x8xf32>, stream = 0} : (tensor<2xi64>) -> tensor<4x3x8xf32>
  %0 = onnx.Add %x, %m : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
  %1 = onnx.Mul %0, %u : (tensor<4x3x8xf32>, tensor<4x3x8xf32>) -> tensor<4x3x8xf32>
  %2 = onnx.Reshape %1 {shape = array<i64: 12, 8>} : (tensor<4x3x8xf32>) -> tensor<12x8xf32>
  %3 = onnx.Contract %2, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<12x8xf32>, tensor<8x5xf32>) -> tensor<12x5xf32>
  %4 = onnx.Transpose %3 {perm = array<i64: 1, 0>} : (tensor<12x5xf32>) -> tensor<5x12xf32>
  %5 = onnx.Reshape %4 {shape = array<i64: 5, 4, 3>} : (tensor<5x12xf32>) -> tensor<5x4x3xf32>
  return %5 : tensor<5x4x3xf32>
}

// -----

// The mean over the samples has their number in a constant.
func.func @model(%x: tensor<4x8xf32> {onnx.name = "x"}) -> tensor<8xf32> {
  // expected-error @below {{needs all samples at once: the model was exported for a fixed batch of 4 samples, and has no form for 2; export it with a symbolic batch dimension}}
  %0 = onnx.ReduceSum %x {axes = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
  %n = onnx.Constant dense<0.25> : tensor<8xf32>
  %1 = onnx.Mul %0, %n : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  return %1 : tensor<8xf32>
}

// -----

func.func @model(%x: tensor<4x2xf32> {onnx.name = "x"}) -> tensor<4x2xf32> {
  %c = onnx.Constant dense<[[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], [1.0, 3.0]]> : tensor<4x2xf32>
  // expected-error @below {{reads values of its own for each sample}}
  %0 = onnx.Add %x, %c : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}

// -----

// A sample's number is no property of the sample.
func.func @model(%x: tensor<4x2xf32> {onnx.name = "x"}) -> tensor<4x2xf32> {
  %c = onnx.Iota {type = tensor<4x2xf32>, dim = 0} : () -> tensor<4x2xf32>
  // expected-error @below {{reads values of its own for each sample}}
  %0 = onnx.Add %x, %c : (tensor<4x2xf32>, tensor<4x2xf32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}

// -----

func.func @model(%x: tensor<4x2xf32> {onnx.name = "x"}) -> tensor<2x2xf32> {
  // expected-error @below {{needs all samples at once}}
  %0 = onnx.Slice %x {starts = array<i64: 0, 0>, sizes = array<i64: 2, 2>, steps = array<i64: 1, 1>} : (tensor<4x2xf32>) -> tensor<2x2xf32>
  return %0 : tensor<2x2xf32>
}
