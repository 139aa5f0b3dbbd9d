// RUN: cleave-opt %s --form-clusters --record-operations | FileCheck %s

// What a kernel computes stands beside it, as bytes of a Graph (runtime/plan/graph.proto) that name its operators.
// CHECK: plan.kernel
// CHECK-SAME: plan.operations = "{{.*}}Add{{.*}}Tanh
func.func @chain(%x: tensor<8x16xf32>, %y: tensor<8x16xf32>) -> tensor<8x16xf32> {
  %s = onnx.Add %x, %y : (tensor<8x16xf32>, tensor<8x16xf32>) -> tensor<8x16xf32>
  %t = onnx.Tanh %s : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %t : tensor<8x16xf32>
}
