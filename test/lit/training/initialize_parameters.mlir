// RUN: cleave-opt %s --initialize-parameters="recipe={loss: {kind: mse}, init: {kind: xavier_uniform, rules: [{match: '*.bias', kind: zeros}]}}" | FileCheck %s
// RUN: cleave-opt %s --initialize-parameters="recipe={loss: {kind: mse}}" | FileCheck %s --check-prefix=KEEP
// RUN: not cleave-opt %s --initialize-parameters="recipe={loss: {kind: mse}, init: {kind: kaiming_normal}}" 2>&1 | FileCheck %s --check-prefix=BAD

// sqrt(6 / (9 + 15)) = 0.5
// CHECK-DAG: onnx.param @fc.weight : tensor<15x9xf32> "parameter" {init = {high = 5.000000e-01 : f64, kind = "uniform", low = -5.000000e-01 : f64, {{.*}}stream = {{[0-9]+}} : i64}, trainable = true}
// CHECK-DAG: onnx.param @fc.bias : tensor<15xf32> "parameter" {fill = 0.000000e+00 : f64, trainable = true}
// CHECK-DAG: onnx.param @bn.mean : tensor<15xf32> "running_statistic" {fill = 0.000000e+00 : f64, trainable = false}
// CHECK-DAG: onnx.param @bn.var : tensor<15xf32> "running_statistic" {fill = 1.000000e+00 : f64, trainable = false}
// KEEP: onnx.param @fc.weight {{.*}}path = "w.bin"
// KEEP: onnx.param @bn.var {{.*}}path = "w.bin"
// BAD: init kind kaiming_normal needs two dimensions or more, parameter 'fc.bias' is
onnx.param @fc.weight : tensor<15x9xf32> "parameter" {trainable = true, path = "w.bin", offset = 0 : i64, length = 540 : i64, file_type = f32}
onnx.param @fc.bias : tensor<15xf32> "parameter" {trainable = true, path = "w.bin", offset = 540 : i64, length = 60 : i64, file_type = f32}
onnx.param @bn.mean : tensor<15xf32> "running_statistic" {trainable = false, path = "w.bin", offset = 600 : i64, length = 60 : i64, file_type = f32}
onnx.param @bn.var : tensor<15xf32> "running_statistic" {trainable = false, path = "w.bin", offset = 660 : i64, length = 60 : i64, file_type = f32}
func.func @forward(%x: tensor<4x15xf32>) -> tensor<4x15xf32> {
  %bias = onnx.read @fc.bias : tensor<15xf32>
  %mean = onnx.read @bn.mean : tensor<15xf32>
  %var = onnx.read @bn.var : tensor<15xf32>
  %y = onnx.node "BatchNormalization"(%x, %bias, %bias, %mean, %var) attributes {domain = "", version = 15 : i64, node_name = "bn", onnx_attributes = {}} : (tensor<4x15xf32>, tensor<15xf32>, tensor<15xf32>, tensor<15xf32>, tensor<15xf32>) -> tensor<4x15xf32>
  return %y : tensor<4x15xf32>
}
