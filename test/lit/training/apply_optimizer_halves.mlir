// RUN: cleave-opt %s --apply-optimizer="recipe={loss: {kind: mse}, optimizer: {kind: sgd, lr: 0.1, momentum: 0.9}}" | FileCheck %s

// A parameter of 16 bits and its state stay so; the rule is of fp32, and what it writes is rounded once.
// CHECK:       onnx.param @"momentum_buffer/w" : tensor<4xbf16> "optimizer_state"
// CHECK-LABEL: func.func @final(
// CHECK-DAG:   %[[READ:.*]] = onnx.read @w {{.*}}tensor<4xbf16>
// CHECK-DAG:   %[[OLD:.*]] = onnx.Cast %[[READ]] {{.*}}to = f32
// CHECK-DAG:   %[[GRADIENT:.*]] = onnx.Cast %arg0 {{.*}}to = f32
// CHECK-DAG:   %[[STATE:.*]] = onnx.read @"momentum_buffer/w" {{.*}}tensor<4xbf16>
// CHECK-DAG:   %[[BEFORE:.*]] = onnx.Cast %[[STATE]] {{.*}}to = f32
// CHECK:       %[[BUFFER:.*]] = onnx.Add %{{.*}}, %[[GRADIENT]] {{.*}}tensor<4xf32>
// CHECK:       %[[KEPT:.*]] = onnx.Cast %[[BUFFER]] {{.*}}to = bf16
// CHECK:       onnx.write @"momentum_buffer/w", %[[KEPT]]
// CHECK:       %[[NEW:.*]] = onnx.Sub %[[OLD]], %{{.*}}tensor<4xf32>
// CHECK:       %[[ROUNDED:.*]] = onnx.Cast %[[NEW]] {{.*}}to = bf16
// CHECK:       onnx.write @w, %[[ROUNDED]]
onnx.param @w : tensor<4xbf16> "parameter" {trainable = true}
func.func @final(%g: tensor<4xbf16> {onnx.name = "g"}, %loss: tensor<f32> {onnx.name = "l"})
    -> (tensor<f32> {onnx.name = "loss"}, tensor<4xbf16> {onnx.gradient_of = @w}) {
  return %loss, %g : tensor<f32>, tensor<4xbf16>
}
