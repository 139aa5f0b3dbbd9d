// RUN: cleave-opt %s --build-evaluate --build-count="microbatches=4" --accumulate-gradients="microbatches=4" | FileCheck %s

// The batch's count is added up ahead; the loss reads it and the last microbatch zeroes it. Evaluation has one microbatch
// only, and takes four times its count.
// CHECK-LABEL: func.func @count(%{{.*}}: tensor<2xf32> {onnx.name = "mask"}) {
// CHECK:         %[[OWN:.*]] = onnx.ReduceSum %{{.*}} {axes
// CHECK:         %[[BEFORE:.*]] = onnx.read @accumulator.loss_count.0
// CHECK:         %[[AFTER:.*]] = onnx.Add %[[BEFORE]], %[[OWN]]
// CHECK:         onnx.write @accumulator.loss_count.0, %[[AFTER]]
// CHECK-LABEL: func.func @accumulate
// CHECK:         %[[ALL:.*]] = onnx.read @accumulator.loss_count.0
// CHECK:         onnx.Div %{{.*}}, %[[ALL]]
// CHECK-NOT:     onnx.write @accumulator.loss_count.0
// CHECK-LABEL: func.func @final
// CHECK:         onnx.write @accumulator.loss_sum
// CHECK:         %[[ZERO:.*]] = onnx.Constant {{.*}}dense<0.000000e+00> : tensor<f32>
// CHECK:         onnx.write @accumulator.loss_count.0, %[[ZERO]]
// CHECK-LABEL: func.func @evaluate
// CHECK-NOT:     onnx.read
// CHECK:         %[[FOUR:.*]] = onnx.Constant {{.*}}dense<4.000000e+00>
// CHECK:         %[[EACH:.*]] = onnx.Mul %{{.*}}, %[[FOUR]]
// CHECK:         onnx.Div %{{.*}}, %[[EACH]]
onnx.param @accumulator.loss_count.0 : tensor<f32> "accumulator" {fill = 0.0 : f64, trainable = false}
func.func @model(%x: tensor<2xf32> {onnx.name = "x"}, %mask: tensor<2xf32> {onnx.name = "mask"}) -> (tensor<f32> {onnx.name = "loss_sum"}, tensor<f32> {onnx.name = "accumulator.loss_count.0"}) {
  %all = onnx.read @accumulator.loss_count.0 : tensor<f32>
  %sum = onnx.ReduceSum %x {axes = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  %own = onnx.ReduceSum %mask {axes = array<i64: 0>} : (tensor<2xf32>) -> tensor<f32>
  %loss = onnx.Div %sum, %all : (tensor<f32>, tensor<f32>) -> tensor<f32>
  return %loss, %own : tensor<f32>, tensor<f32>
}
