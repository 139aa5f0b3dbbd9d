// RUN: cleave-opt %s --form-clusters --lower-kernels-to-linalg --schedule-kernels | FileCheck %s

// Rows of 64: the two leading dimensions are one factor, the Reshape is in the indexing map.
// CHECK-DAG: #[[FLAT:.*]] = affine_map<(d0, d1) -> (d0 * 64 + d1)>
// CHECK-LABEL: func.func @center
// CHECK: plan.launch @{{.*}}(%arg0) {extent = 128 : i64, grain = 64 : i64, inplace = array<i64: 0, 0>
func.func @center(%x: tensor<8x16x8x8xf32>) -> tensor<8x16x64xf32> {
  %r = onnx.Reshape %x {shape = array<i64: 8, 16, 64>} : (tensor<8x16x8x8xf32>) -> tensor<8x16x64xf32>
  %m = onnx.ReduceMax %r {axes = array<i64: 2>} : (tensor<8x16x64xf32>) -> tensor<8x16xf32>
  %b = onnx.Broadcast %m {shape = array<i64: 8, 16, 64>, dims = array<i64: 0, 1>} : (tensor<8x16xf32>) -> tensor<8x16x64xf32>
  %y = onnx.Sub %r, %b : (tensor<8x16x64xf32>, tensor<8x16x64xf32>) -> tensor<8x16x64xf32>
  return %y : tensor<8x16x64xf32>
}

// A kernel that reads part of a longer tensor: its range is its own elements, not the tensor's.
// CHECK-LABEL: func.func @part
// CHECK: plan.launch @{{.*}}(%arg0, %arg1) {extent = 32 : i64
func.func @part(%x: tensor<2x8x4xf32>, %y: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %s = onnx.Slice %x {starts = array<i64: 1, 0, 0>, sizes = array<i64: 1, 8, 4>, steps = array<i64: 1, 1, 1>} : (tensor<2x8x4xf32>) -> tensor<1x8x4xf32>
  %r = onnx.Reshape %s {shape = array<i64: 8, 4>} : (tensor<1x8x4xf32>) -> tensor<8x4xf32>
  %z = onnx.Mul %r, %y : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return %z : tensor<8x4xf32>
}

// The kernel of @center.
// CHECK: plan.kernel
// CHECK-SAME: plan.domain = array<i64: 128, 64>, plan.reduced = array<i64: 1>
// CHECK: tensor.collapse_shape
// CHECK: linalg.generic {{.*}}#[[FLAT]]
// CHECK: linalg.generic {{.*}}iterator_types = ["parallel", "reduction"]
// CHECK: arith.maximumf
// CHECK: arith.subf
// CHECK: plan.yield
