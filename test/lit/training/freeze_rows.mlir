// RUN: cleave-opt %s --freeze-rows="recipe={frozen_rows: {\"e*\": [0, -1]}, loss: {kind: mse}}" | FileCheck %s
// RUN: cleave-opt %s --freeze-rows="recipe={loss: {kind: mse}}" | FileCheck %s --check-prefix=NONE
// RUN: not cleave-opt %s --freeze-rows="recipe={frozen_rows: {\"e*\": [4]}, loss: {kind: mse}}" 2>&1 | FileCheck %s --check-prefix=FAR

// CHECK-LABEL: func.func @final
// CHECK:         %[[FIRST:.*]] = onnx.Equal
// CHECK:         %[[LAST:.*]] = onnx.Equal
// CHECK:         %[[ARE:.*]] = onnx.Or %[[FIRST]], %[[LAST]]
// CHECK:         %[[G:.*]] = onnx.Where %[[ARE]], %{{.*}}, %[[A:[0-9a-z]+]] {{.*}} : (tensor<4x2xi1>
// CHECK:         return %{{.*}}, %[[G]], %{{.*}}

// NONE-NOT: onnx.Where
// FAR: 'embed' has 4 rows, and none 4
onnx.param @embed : tensor<4x2xf32> "parameter" {trainable = true}
onnx.param @b : tensor<3xf32> "parameter" {trainable = true}
func.func @final() -> (tensor<f32> {onnx.name = "loss"}, tensor<4x2xf32> {onnx.gradient_of = @embed}, tensor<3xf32> {onnx.gradient_of = @b}) {
  %a = onnx.read @embed : tensor<4x2xf32>
  %b = onnx.read @b : tensor<3xf32>
  %loss = onnx.ReduceSum %a {axes = array<i64: 0, 1>} : (tensor<4x2xf32>) -> tensor<f32>
  return %loss, %a, %b : tensor<f32>, tensor<4x2xf32>, tensor<3xf32>
}
