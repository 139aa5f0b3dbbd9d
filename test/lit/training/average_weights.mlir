// RUN: cleave-opt %s --average-weights="recipe={loss: {kind: mse}, ema: {decay: 0.75, every: 2}}" | FileCheck %s
// RUN: cleave-opt %s --average-weights="recipe={loss: {kind: mse}}" | FileCheck %s --check-prefix=NONE

// NONE-NOT: ema
// CHECK-DAG: onnx.param @"ema/w" : tensor<4xf32>
// CHECK-DAG: onnx.param @ema.made : tensor<f32> "optimizer_state"
// CHECK-DAG: onnx.param @ema.waited : tensor<f32> "optimizer_state"
onnx.param @w : tensor<4xf32> "parameter" {trainable = true}

// The first average is the new weight itself, later ones are 0.75 of the old and 0.25 of the new, every second step.
// CHECK-LABEL: func.func @final
// CHECK-DAG:     %[[MADE:.*]] = onnx.read @ema.made
// CHECK-DAG:     %[[WAITED:.*]] = onnx.read @ema.waited
// CHECK:         %[[DUE:.*]] = onnx.GreaterOrEqual
// CHECK:         %[[FIRST:.*]] = onnx.Less %[[MADE]]
// CHECK:         %[[OLD:.*]] = onnx.read @"ema/w"
// CHECK-DAG:     dense<7.500000e-01>
// CHECK-DAG:     dense<2.500000e-01>
// CHECK:         %[[NEXT:.*]] = onnx.Add
// CHECK:         %[[BEGUN:.*]] = onnx.Where %{{.*}}, %[[NEW:.*]], %[[NEXT]]
// CHECK:         %[[KEPT:.*]] = onnx.Where %{{.*}}, %[[BEGUN]], %[[OLD]]
// CHECK:         onnx.write @"ema/w", %[[KEPT]]
func.func @final(%g: tensor<4xf32>, %loss: tensor<f32>) -> (tensor<f32> {onnx.name = "loss"}) {
  %w = onnx.read @w : tensor<4xf32>
  %n = onnx.Sub %w, %g {place.at = #place.at<phase = update>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  onnx.write @w, %n {place.at = #place.at<phase = update>} : tensor<4xf32>
  return %loss : tensor<f32>
}

// CHECK-LABEL: func.func @evaluate
// CHECK-NOT:     onnx.read @w
// CHECK:         onnx.read @"ema/w"
func.func @evaluate() -> (tensor<f32> {onnx.name = "loss"}) {
  %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4xf32>
  %s = onnx.ReduceSum %w {place.at = #place.at<phase = forward>, axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %s : tensor<f32>
}
