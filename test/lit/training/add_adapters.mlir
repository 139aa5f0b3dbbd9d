// RUN: cleave-opt %s --add-adapters="recipe={loss: {kind: mse}, lora: {match: ['*proj*'], rank: 2, alpha: 6, dropout: 0.25}}" | FileCheck %s
// RUN: cleave-opt %s --add-adapters="recipe={loss: {kind: mse}, lora: {match: ['fc'], rank: 4}, trainable: ['q_proj.bias']}" | FileCheck %s --check-prefix=GEMM
// RUN: cleave-opt %s --add-adapters="recipe={loss: {kind: mse}}" | FileCheck %s --check-prefix=NONE
// RUN: not cleave-opt %s --add-adapters="recipe={loss: {kind: mse}, lora: {match: ['*proj*'], rank: 7}}" 2>&1 | FileCheck %s --check-prefix=RANK
// RUN: not cleave-opt %s --add-adapters="recipe={loss: {kind: mse}, lora: {match: ['*'], rank: 2}}" 2>&1 | FileCheck %s --check-prefix=OTHER
// RUN: not cleave-opt %s --add-adapters="recipe={loss: {kind: mse}, lora: {match: ['*bias'], rank: 2}}" 2>&1 | FileCheck %s --check-prefix=VECTOR

// Uniform in 1 / sqrt(16); the bias that the glob names too is passed over, and all else is frozen.
// CHECK-DAG: onnx.param @q_proj.lora_A.weight : tensor<16x2xf32> "parameter" {init = {high = 2.500000e-01 : f64, kind = "uniform", low = -2.500000e-01 : f64, {{.*}}trainable = true
// CHECK-DAG: onnx.param @q_proj.lora_B.weight : tensor<2x6xf32> "parameter" {fill = 0.000000e+00 : f64, {{.*}}trainable = true
// CHECK-DAG: onnx.param @q_proj.weight {{.*}}trainable = false
// CHECK-DAG: onnx.param @q_proj.bias {{.*}}trainable = false
// CHECK-DAG: onnx.param @embed {{.*}}trainable = false
// CHECK:     %[[Y:.*]] = onnx.node "MatMul"(%[[X:.*]], %{{.*}}) {{.*}}node_name = "q"
// CHECK:     %[[D:.*]] = onnx.node "Dropout"(%[[X]], %{{.*}}, %{{.*}}) attributes {{.*}}onnx.adapter_dropout
// CHECK:     %[[A:.*]] = onnx.read @q_proj.lora_A.weight
// CHECK:     %[[H:.*]] = onnx.node "MatMul"(%[[D]], %[[A]])
// CHECK:     %[[B:.*]] = onnx.read @q_proj.lora_B.weight
// CHECK:     %[[O:.*]] = onnx.node "MatMul"(%[[H]], %[[B]])
// CHECK:     dense<3.000000e+00>
// CHECK:     %[[S:.*]] = onnx.node "Mul"(%[[O]]
// CHECK:     %[[Z:.*]] = onnx.node "Add"(%[[Y]], %[[S]])
// CHECK:     onnx.node "Add"(%[[Z]], %{{.*}}) {{.*}}node_name = "q_bias"

// A Gemm with transB has [out, in], and its alpha multiplies the adapter too. Weights that `trainable` names train beside it.
// GEMM-DAG: onnx.param @fc.lora_A.weight : tensor<6x4xf32>
// GEMM-DAG: onnx.param @fc.lora_B.weight : tensor<4x5xf32>
// GEMM-DAG: onnx.param @q_proj.bias {{.*}}trainable = true
// GEMM:     dense<5.000000e-01>
// NONE-NOT: lora
// RANK: 'lora.rank' is 7, and 'q_proj.weight' has 16 inputs and 6 outputs: the rank must be at most 6
// OTHER: these matrices are not only that: 'embed', which Gather 'look' reads; name others in 'lora.match'
// VECTOR: '*bias' of 'lora.match' names no weight of a MatMul or Gemm
onnx.param @embed : tensor<9x16xf32> "parameter" {trainable = true}
onnx.param @q_proj.weight : tensor<16x6xf32> "parameter" {trainable = true}
onnx.param @q_proj.bias : tensor<6xf32> "parameter" {trainable = true}
onnx.param @fc : tensor<5x6xf32> "parameter" {trainable = true}
func.func @model(%ids: tensor<3xi64>) -> tensor<3x5xf32> {
  %table = onnx.read @embed : tensor<9x16xf32>
  %w = onnx.read @q_proj.weight : tensor<16x6xf32>
  %b = onnx.read @q_proj.bias : tensor<6xf32>
  %fc = onnx.read @fc : tensor<5x6xf32>
  %x = onnx.node "Gather"(%table, %ids) attributes {domain = "", version = 13 : i64, node_name = "look", onnx_attributes = {}} : (tensor<9x16xf32>, tensor<3xi64>) -> tensor<3x16xf32>
  %q = onnx.node "MatMul"(%x, %w) attributes {domain = "", version = 13 : i64, node_name = "q", onnx_attributes = {}} : (tensor<3x16xf32>, tensor<16x6xf32>) -> tensor<3x6xf32>
  %s = onnx.node "Add"(%q, %b) attributes {domain = "", version = 14 : i64, node_name = "q_bias", onnx_attributes = {}} : (tensor<3x6xf32>, tensor<6xf32>) -> tensor<3x6xf32>
  %y = onnx.node "Gemm"(%s, %fc) attributes {domain = "", version = 13 : i64, node_name = "head", onnx_attributes = {alpha = 0.5 : f32, transB = 1 : i64}} : (tensor<3x6xf32>, tensor<5x6xf32>) -> tensor<3x5xf32>
  return %y : tensor<3x5xf32>
}
