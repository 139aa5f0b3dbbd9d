// RUN: cleave-opt %s --build-evaluate | FileCheck %s

// @evaluate reads the running statistic, passes by the dropout, writes nothing and returns the mean and what it was divided by; the markers are gone.
// CHECK-LABEL: func.func @model
// CHECK:         onnx.Mul
// CHECK-NOT:     onnx.dropout
// CHECK-NOT:     onnx.batch_statistic
// CHECK:         onnx.write @mean
// CHECK-LABEL: func.func @evaluate
// CHECK-SAME:    -> (tensor<f32> {onnx.name = "loss"}, tensor<f32> {onnx.name = "loss_weight"})
// CHECK-DAG:     %[[P:.*]] = onnx.read @p
// CHECK-DAG:     %[[MEAN:.*]] = onnx.read @mean
// CHECK-NOT:     onnx.Mul
// CHECK:         %[[Y:.*]] = onnx.Sub %[[P]], %[[MEAN]]
// CHECK:         %[[SUM:.*]] = onnx.ReduceSum %[[Y]]
// CHECK:         %[[LOSS:.*]] = onnx.Div %[[SUM]]
// CHECK-NOT:     onnx.write
// CHECK:         return %[[LOSS]], %{{.*}} : tensor<f32>, tensor<f32>
onnx.param @p : tensor<4xf32> "parameter" {trainable = true}
onnx.param @mean : tensor<4xf32> "running_statistic" {trainable = false}
func.func @model(%mask: tensor<4xf32> {onnx.name = "mask"}) -> (tensor<f32> {onnx.name = "loss_sum"}, tensor<f32> {onnx.name = "loss_weight"}) {
  %p = onnx.read @p : tensor<4xf32>
  %d = onnx.Mul %p, %mask {onnx.dropout} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  %m = onnx.Exp %d {onnx.batch_statistic = @mean} : (tensor<4xf32>) -> tensor<4xf32>
  %y = onnx.Sub %d, %m : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  onnx.write @mean, %m : tensor<4xf32>
  %sum = onnx.ReduceSum %y {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %weight = onnx.Constant dense<4.0> : tensor<f32>
  return %sum, %weight : tensor<f32>, tensor<f32>
}
