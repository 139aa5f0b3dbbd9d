// RUN: cleave-opt %s --skip-steps="recipe={loss: {kind: mse}, skip_outliers: {factor: 4, decay: 0.75, warmup: 7}}" | FileCheck %s
// RUN: cleave-opt %s --clip-gradients="recipe={loss: {kind: mse}, clip_norm: 3, clip_norms: [{match: [b], norm: 2}]}" | FileCheck %s --check-prefix=GROUPS

// The optimizer's results are kept where the norm is usual; the mean itself is always written, and so is the count.
// CHECK-DAG:   onnx.param @outliers.mean : tensor<f32> "optimizer_state"
// CHECK-DAG:   onnx.param @loss_scale.skipped : tensor<f32> "optimizer_state"
// CHECK-LABEL: func.func @final
// CHECK-SAME:    tensor<f32> {onnx.name = "skipped"})
// CHECK:       dense<7.000000e+00>
// CHECK:       %[[WARM:.*]] = onnx.GreaterOrEqual
// CHECK:       %[[LOW:.*]] = onnx.LessOrEqual
// CHECK:       %[[USUAL:.*]] = onnx.Where %[[WARM]], %[[LOW]]
// CHECK:       %[[OLD:.*]] = onnx.read @w
// CHECK:       %[[KEPT:.*]] = onnx.Where %[[USUAL]], %{{.*}}, %[[OLD]]
// CHECK:       onnx.write @w, %[[KEPT]]
// CHECK:       onnx.write @outliers.mean
// CHECK:       onnx.write @loss_scale.skipped
// CHECK-NOT:   loss_scale"

// Each by its own norm: b by 2, and the others, here a, by 3.
// GROUPS-LABEL: func.func @final
// GROUPS-DAG:   %[[SA:.*]] = onnx.ReduceSum %{{.*}}phase = update>} : (tensor<4xf32>)
// GROUPS-DAG:   %[[SB:.*]] = onnx.ReduceSum %{{.*}}phase = update>} : (tensor<3xf32>)
// GROUPS:       onnx.Sum %[[SA]], %[[SB]]
// GROUPS:       onnx.Sqrt %[[SB]]
// GROUPS:       dense<2.000000e+00>
// GROUPS:       onnx.Sqrt %[[SA]]
// GROUPS:       dense<3.000000e+00>
onnx.param @w : tensor<f32> "parameter" {trainable = true}
onnx.param @a : tensor<4xf32> "parameter" {trainable = true}
onnx.param @b : tensor<3xf32> "parameter" {trainable = true}
func.func @final() -> (tensor<f32> {onnx.name = "loss"}, tensor<f32> {onnx.name = "grad_norm"}, tensor<4xf32> {onnx.gradient_of = @a}, tensor<3xf32> {onnx.gradient_of = @b}) {
  %a = onnx.read @a : tensor<4xf32>
  %b = onnx.read @b : tensor<3xf32>
  %l = onnx.ReduceSum %a {axes = array<i64: 0>} : (tensor<4xf32>) -> tensor<f32>
  %new = onnx.Neg %l {place.at = #place.at<phase = update>} : (tensor<f32>) -> tensor<f32>
  onnx.write @w, %new {place.at = #place.at<phase = update>} : tensor<f32>
  return %l, %l, %a, %b : tensor<f32>, tensor<f32>, tensor<4xf32>, tensor<3xf32>
}
