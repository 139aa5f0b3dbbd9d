// RUN: cleave-opt %s --accumulate-gradients | FileCheck %s --check-prefix=ONE
// RUN: cleave-opt %s --accumulate-gradients="microbatches=3" | FileCheck %s

// One microbatch: the weight is in the gradient already.
// ONE-NOT:     onnx.param @accumulator
// ONE-LABEL: func.func @final
// ONE-SAME:    -> (tensor<f32> {onnx.name = "loss"}, tensor<4xf32> {onnx.gradient_of = @w})
// ONE:         %[[W:.*]] = onnx.read @w
// ONE:         %[[LOSS:.*]] = onnx.Div
// ONE:         return %[[LOSS]], %[[W]]

// The weight depends on the labels: it is accumulated, and divides the gradients at the end.
// CHECK-DAG:   onnx.param @accumulator.loss_sum : tensor<f32> "accumulator" {fill = 0.000000e+00 : f64, trainable = false}
// CHECK-DAG:   onnx.param @accumulator.loss_weight : tensor<f32>
// CHECK-DAG:   onnx.param @"accumulator/w" : tensor<4xf32> "accumulator" {fill = 0.000000e+00 : f64, of = @w, trainable = false}
// CHECK-LABEL: func.func @accumulate({{.*}}) {
// CHECK:         %[[BEFORE:.*]] = onnx.read @"accumulator/w"
// CHECK:         %[[AFTER:.*]] = onnx.Add %[[BEFORE]]
// CHECK:         onnx.write @"accumulator/w", %[[AFTER]]
// CHECK-LABEL: func.func @final
// CHECK:         %[[SUM:.*]] = onnx.Add
// CHECK:         %[[WEIGHTS:.*]] = onnx.read @accumulator.loss_weight
// CHECK:         %[[WEIGHT:.*]] = onnx.Add %[[WEIGHTS]]
// CHECK:         %[[SOFAR:.*]] = onnx.read @"accumulator/w"
// CHECK:         %[[TOTAL:.*]] = onnx.Add %[[SOFAR]]
// CHECK:         %[[ZERO:.*]] = onnx.Constant {place.at = #place.at<phase = update>} dense<0.000000e+00> : tensor<4xf32>
// CHECK:         onnx.write @"accumulator/w", %[[ZERO]]
// CHECK:         %[[LOSS:.*]] = onnx.Div %[[SUM]], %[[WEIGHT]]
// CHECK:         %[[WIDE:.*]] = onnx.Broadcast %[[WEIGHT]]
// CHECK:         %[[GRAD:.*]] = onnx.Div %[[TOTAL]], %[[WIDE]]
// CHECK:         return %[[LOSS]], %[[GRAD]]
onnx.param @w : tensor<4xf32> "parameter" {trainable = true}
func.func @model(%weight: tensor<f32> {onnx.name = "weight"}) -> (tensor<f32> {onnx.name = "loss_sum"}, tensor<f32> {onnx.name = "loss_weight"}, tensor<4xf32> {onnx.gradient_of = @w}) {
  %w = onnx.read @w : tensor<4xf32>
  %sum = onnx.ReduceSum %w {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  return %sum, %weight, %w : tensor<f32>, tensor<f32>, tensor<4xf32>
}
