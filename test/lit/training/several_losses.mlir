// RUN: cleave-opt %s --attach-loss="recipe={loss: [{kind: softmax_cross_entropy, output: y, name: cls}, {kind: mse, output: z, labels: {output: teacher}, scale: 0.5}]}" --build-evaluate | FileCheck %s
// RUN: cleave-opt %s --training="recipe={loss: [{kind: softmax_cross_entropy, output: y, name: cls}, {kind: mse, output: z, labels: {output: teacher}, scale: 0.5}], optimizer: {kind: sgd}} microbatches=4" | FileCheck %s --check-prefix=STEP
// RUN: not cleave-opt %s --attach-loss="recipe={loss: [{kind: softmax_cross_entropy, output: y}, {kind: mse, output: z}]}" 2>&1 | FileCheck %s --check-prefix=SHARED
// SHARED: loss mse: labels 'labels' are tensor<8x5xf32> here, and tensor<8xi64> for a loss before it: give them another name

// Each loss is a result, divided by its weight. A teacher's gradient stops.
// CHECK-LABEL: func.func @model(
// CHECK-SAME:    -> (tensor<f32> {onnx.name = "loss_sum"}, tensor<f32> {onnx.name = "loss_weight"}, tensor<f32> {onnx.name = "loss.cls"}, tensor<f32> {onnx.name = "loss.mse"})
// CHECK:       onnx.StopGradient %{{.*}} : (tensor<8x5xf32>)
// CHECK:       dense<5.000000e-01>
// CHECK:       onnx.Sum
// An evaluation has the weights, too, to join the losses of several batches.
// CHECK-LABEL: func.func @evaluate(
// CHECK-SAME:    "loss.cls"}, tensor<f32> {onnx.name = "loss_weight.cls"}, tensor<f32> {onnx.name = "loss.mse"}, tensor<f32> {onnx.name = "loss_weight.mse"})

// What depends on labels is counted ahead of the microbatches.
// STEP:        onnx.param @accumulator.loss_count.0
// STEP-LABEL:  func.func @count(
// STEP:        onnx.write @accumulator.loss_count.0
// STEP:        onnx.param @accumulator.loss.cls
// STEP-LABEL:  func.func @final(
// STEP-SAME:     -> (tensor<f32> {onnx.name = "loss"}, tensor<f32> {onnx.name = "loss.cls"}, tensor<f32> {onnx.name = "loss.mse"}, tensor<f32> {onnx.name = "grad_norm"})
// STEP:        %[[COUNT:.*]] = onnx.read @accumulator.loss_count.0
// STEP:        onnx.Div %{{.*}}, %[[COUNT]]
onnx.param @w : tensor<8x5xf32> "parameter" {trainable = true, fill = 1.0}
func.func @model(%x: tensor<8x5xf32> {onnx.name = "x"}) -> (tensor<8x5xf32> {onnx.name = "y"}, tensor<8x5xf32> {onnx.name = "z"}, tensor<8x5xf32> {onnx.name = "teacher"}) {
  %w = onnx.read @w : tensor<8x5xf32>
  %y = onnx.Mul %x, %w : (tensor<8x5xf32>, tensor<8x5xf32>) -> tensor<8x5xf32>
  %z = onnx.Neg %y : (tensor<8x5xf32>) -> tensor<8x5xf32>
  %t = onnx.Exp %y : (tensor<8x5xf32>) -> tensor<8x5xf32>
  return %y, %z, %t : tensor<8x5xf32>, tensor<8x5xf32>, tensor<8x5xf32>
}
