// RUN: cleave-opt %s --clip-gradients="recipe={clip_norm: 0.5, loss: {kind: mse}}" | FileCheck %s
// RUN: cleave-opt %s --clip-gradients="recipe={loss: {kind: mse}}" | FileCheck %s --check-prefix=UNCLIPPED
// RUN: cleave-opt %s --clip-gradients="recipe={clip_norm: 0.5, loss: {kind: mse}, grad_norms: {some: [a], all: ['*']}}" | FileCheck %s --check-prefix=GROUPS
// RUN: not cleave-opt %s --clip-gradients="recipe={loss: {kind: mse}, grad_norms: {none: [c]}}" 2>&1 | FileCheck %s --check-prefix=NONE

// CHECK-LABEL: func.func @final
// CHECK-SAME:    -> (tensor<f32> {onnx.name = "loss"}, tensor<f32> {onnx.name = "grad_norm"}, tensor<4xf32> {onnx.gradient_of = @a}, tensor<3xf32> {onnx.gradient_of = @b})
// CHECK-DAG:     %[[SA:.*]] = onnx.Mul %[[A:.*]], %[[A]]
// CHECK-DAG:     %[[QA:.*]] = onnx.ReduceSum %[[SA]]
// CHECK-DAG:     %[[SB:.*]] = onnx.Mul %[[B:.*]], %[[B]]
// CHECK-DAG:     %[[QB:.*]] = onnx.ReduceSum %[[SB]]
// CHECK:         %[[SQUARES:.*]] = onnx.Sum %[[QA]], %[[QB]]
// CHECK:         %[[NORM:.*]] = onnx.Sqrt %[[SQUARES]]
// CHECK:         dense<5.000000e-01>
// CHECK:         %[[RATIO:.*]] = onnx.Div
// CHECK:         %[[FACTOR:.*]] = onnx.Min %[[RATIO]]
// CHECK:         %[[WIDE:.*]] = onnx.Broadcast %[[FACTOR]]
// CHECK:         onnx.Mul %{{.*}}, %[[WIDE]]

// The norm is there without clipping, too.
// UNCLIPPED:      %[[NORM:.*]] = onnx.Sqrt
// UNCLIPPED-NOT:      onnx.Min
// UNCLIPPED:      return %{{.*}}, %[[NORM]], %{{.*}}, %{{.*}}
onnx.param @a : tensor<4xf32> "parameter" {trainable = true}
onnx.param @b : tensor<3xf32> "parameter" {trainable = true}
func.func @final() -> (tensor<f32> {onnx.name = "loss"}, tensor<4xf32> {onnx.gradient_of = @a}, tensor<3xf32> {onnx.gradient_of = @b}) {
  %a = onnx.read @a : tensor<4xf32>
  %b = onnx.read @b : tensor<3xf32>
  %loss = onnx.ReduceSum %a {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %loss, %a, %b : tensor<f32>, tensor<4xf32>, tensor<3xf32>
}

// The norms of groups are those before clipping.
// GROUPS: func.func @final() -> (tensor<f32> {onnx.name = "loss"}, tensor<f32> {onnx.name = "grad_norm"}, tensor<f32> {onnx.name = "grad_norm.some"}, tensor<f32> {onnx.name = "grad_norm.all"},
// NONE: no parameter of the group 'none' trains
