// RUN: cleave-opt %s --copy-kept-values | FileCheck %s

// A value that is kept for a later function has a buffer of its own: a parameter and one that is kept
// twice are copied; what a command has made, and what is not kept, is not.
// CHECK-LABEL: func.func @forward.0
// CHECK:         %[[W:.*]] = onnx.read @w
// CHECK:         %[[A:.*]] = plan.launch
// CHECK:         %[[W2:.*]] = plan.copy %[[W]]
// CHECK:         %[[A2:.*]] = plan.copy %[[A]]
// CHECK-NOT:     plan.copy
// CHECK:         return %[[A]], %[[W2]], %[[A2]], %[[W]]
onnx.param @w : tensor<4xf32> "parameter" {trainable = true}
plan.kernel @k(%a: tensor<4xf32>, %b: tensor<4xf32>) { plan.yield %a : tensor<4xf32> }
func.func @forward.0(%x: tensor<4xf32>) -> (tensor<4xf32> {place.kept = 0 : i64}, tensor<4xf32> {place.kept = 1 : i64}, tensor<4xf32> {place.kept = 2 : i64}, tensor<4xf32>) {
  %w = onnx.read @w : tensor<4xf32>
  %a = plan.launch @k(%x, %w) {extent = 4 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %a, %w, %a, %w : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}
