// A flat kernel's range is what its results have, not what the tensors have of which it reads slices.
// RUN: cleave-opt %s --verify-each=false --form-clusters --lower-kernels-to-linalg --schedule-kernels | FileCheck %s

// CHECK-LABEL: sym_name = "final"
// CHECK: plan.launch{{.*}}extent = 16 : i64
func.func @final(%x: tensor<8x4xf32>) -> (tensor<4x4xf32> {onnx.name = "y"}) {
  %head = onnx.Slice %x {starts = array<i64: 0, 0>, sizes = array<i64: 4, 4>, steps = array<i64: 1, 1>} : (tensor<8x4xf32>) -> tensor<4x4xf32>
  %tail = onnx.Slice %x {starts = array<i64: 4, 0>, sizes = array<i64: 4, 4>, steps = array<i64: 1, 1>} : (tensor<8x4xf32>) -> tensor<4x4xf32>
  %y = onnx.Mul %head, %tail : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}
