// RUN: cleave-opt %s --scale-loss="recipe={loss: {kind: mse}, precision: fp16, loss_scale: {init: 1024}}" --build-backward | FileCheck %s --check-prefix=SCALE
// RUN: cleave-opt %s --scale-loss="recipe={loss: {kind: mse}, precision: fp16}" --build-backward --accumulate-gradients --unscale-gradients --clip-gradients="recipe={loss: {kind: mse}}" --apply-optimizer="recipe={loss: {kind: mse}, optimizer: {kind: sgd, lr: 1}}" --skip-steps="recipe={loss: {kind: mse}, precision: fp16, loss_scale: {interval: 3}}" | FileCheck %s --check-prefix=SKIP
// RUN: not cleave-opt %s --scale-loss="recipe={loss: {kind: mse}, loss_scale: {init: 1}}" 2>&1 | FileCheck %s --check-prefix=FP16
// FP16: 'loss_scale' is for precision fp16, this recipe's is fp32

// The loss that is reported stays; its derivative begins with the scale.
// SCALE:       onnx.param @loss_scale : tensor<f32> "optimizer_state" {fill = 1.024000e+03
// SCALE-LABEL: func.func @model
// SCALE:       %[[L:.*]] = onnx.ReduceSum
// SCALE:       %[[S:.*]] = onnx.read @loss_scale
// SCALE:       %[[SEED:.*]] = onnx.Constant {{.*}}dense<1.000000e+00>
// SCALE:       %[[D:.*]] = onnx.Mul %[[SEED]], %[[S]]
// SCALE:       return %[[L]],

// SKIP-LABEL:  func.func @final
// Unscaled before the norm is taken.
// SKIP:        %[[INVERSE:.*]] = onnx.Reciprocal
// SKIP:        %[[WIDE:.*]] = onnx.Broadcast %[[INVERSE]]
// SKIP:        %[[G:.*]] = onnx.Mul %{{.*}}, %[[WIDE]]
// SKIP:        %[[NORM:.*]] = onnx.Sqrt
// SKIP:        %[[NEW:.*]] = onnx.Sub
// SKIP:        %[[FINITE:.*]] = onnx.Less %[[NORM]]
// SKIP:        %[[WHERE:.*]] = onnx.Broadcast %[[FINITE]]
// SKIP:        %[[KEPT:.*]] = onnx.Where %[[WHERE]], %[[NEW]], %
// SKIP:        onnx.write @w, %[[KEPT]]
// SKIP:        dense<3.000000e+00>
// SKIP:        onnx.write @loss_scale, %[[ADAPTED:.*]] {
// SKIP:        onnx.write @loss_scale.good_steps
// SKIP:        onnx.write @loss_scale.skipped, %[[COUNT:.*]] {
// SKIP:        return %{{.*}}, %[[NORM]], %[[ADAPTED]], %[[COUNT]]
onnx.param @w : tensor<4xf32> "parameter" {trainable = true, fill = 1.0}
func.func @model() -> (tensor<f32> {onnx.name = "loss_sum"}) {
  %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4xf32>
  %l = onnx.ReduceSum %w {axes = array<i64: 0>, place.at = #place.at<phase = forward>} : (tensor<4xf32>) -> tensor<f32>
  return %l : tensor<f32>
}
