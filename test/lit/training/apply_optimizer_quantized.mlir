// RUN: cleave-opt %s --apply-optimizer="recipe={loss: {kind: mse}, optimizer: {kind: adamw, lr: 0.1, state_dtype: fp8}}" | FileCheck %s

// Momenta of a matrix are codes with a scale for each row; its second moment, and all of a small tensor, stay in f32. A
// row of a convolution's weight is all that makes one output: its last dimension alone has too few elements.
// CHECK-DAG:   onnx.param @"exp_avg/w" : tensor<64x128xf8E4M3FN> "optimizer_state"
// CHECK-DAG:   onnx.param @"exp_avg.scale/w" : tensor<64x1xf32> "optimizer_state" {fill = 1.000000e+00
// CHECK-DAG:   onnx.param @"exp_avg_sq/w" : tensor<64x128xf32>
// CHECK-DAG:   onnx.param @"exp_avg/small" : tensor<32x64xf32>
// CHECK-DAG:   onnx.param @"exp_avg.scale/conv" : tensor<32x1x1x1xf32>
// CHECK-DAG:   onnx.param @"exp_avg.scale/experts" : tensor<2x16x1xf32>
// CHECK-DAG:   onnx.param @"exp_avg/biases" : tensor<2x4096xf32>
// CHECK-LABEL: func.func @final(
// CHECK:       %[[CODES:.*]] = onnx.read @"exp_avg/w"
// CHECK:       %[[SCALES:.*]] = onnx.read @"exp_avg.scale/w"
// CHECK:       %[[ROWS:.*]] = onnx.Reshape %[[SCALES]] {{.*}}tensor<64xf32>
// CHECK:       %[[WIDE:.*]] = onnx.Cast %[[CODES]] {{.*}}to = f32
// CHECK:       %[[SPREAD:.*]] = onnx.Broadcast %[[ROWS]]
// CHECK:       %[[OLD:.*]] = onnx.Mul %[[WIDE]], %[[SPREAD]]
// CHECK:       %[[KEPT:.*]] = onnx.Mul %[[OLD]]
// CHECK:       %[[NEW:.*]] = onnx.Add %[[KEPT]]
// CHECK:       %[[SIZE:.*]] = onnx.Abs %[[NEW]]
// CHECK:       %[[LARGEST:.*]] = onnx.ReduceMax %[[SIZE]]
// CHECK:       %[[SCALE:.*]] = onnx.Where
// CHECK:       %[[DIVISOR:.*]] = onnx.Broadcast %[[SCALE]]
// CHECK:       %[[UNITS:.*]] = onnx.Div %[[NEW]], %[[DIVISOR]]
// CHECK:       %[[ROUNDED:.*]] = onnx.Cast %[[UNITS]] {{.*}}to = f8E4M3FN
// CHECK:       %[[STORED:.*]] = onnx.Reshape %[[SCALE]] {{.*}}tensor<64x1xf32>
// CHECK:       onnx.write @"exp_avg.scale/w", %[[STORED]]
// CHECK:       onnx.write @"exp_avg/w", %[[ROUNDED]]
onnx.param @w : tensor<64x128xf32> "parameter" {trainable = true}
onnx.param @small : tensor<32x64xf32> "parameter" {trainable = true}
onnx.param @conv : tensor<32x16x3x3xf32> "parameter" {trainable = true}
onnx.param @experts : tensor<2x16x256xf32> "parameter" {trainable = true, onnx.pieces = [{sym_name = "a"}, {sym_name = "b"}], original_shape = array<i64: 2, 16, 256>}
onnx.param @biases : tensor<2x4096xf32> "parameter" {trainable = true, onnx.pieces = [{sym_name = "a"}, {sym_name = "b"}], original_shape = array<i64: 2, 4096>}
func.func @final(%w: tensor<64x128xf32> {onnx.name = "w"}, %small: tensor<32x64xf32> {onnx.name = "s"},
                 %conv: tensor<32x16x3x3xf32> {onnx.name = "c"}, %experts: tensor<2x16x256xf32> {onnx.name = "e"},
                 %biases: tensor<2x4096xf32> {onnx.name = "b"}, %loss: tensor<f32> {onnx.name = "l"})
    -> (tensor<f32> {onnx.name = "loss"}, tensor<64x128xf32> {onnx.gradient_of = @w}, tensor<32x64xf32> {onnx.gradient_of = @small},
        tensor<32x16x3x3xf32> {onnx.gradient_of = @conv}, tensor<2x16x256xf32> {onnx.gradient_of = @experts},
        tensor<2x4096xf32> {onnx.gradient_of = @biases}) {
  return %loss, %w, %small, %conv, %experts, %biases : tensor<f32>, tensor<64x128xf32>, tensor<32x64xf32>,
    tensor<32x16x3x3xf32>, tensor<2x16x256xf32>, tensor<2x4096xf32>
}
