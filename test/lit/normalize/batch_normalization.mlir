// RUN: cleave-opt %s --normalize-nodes=batch-norm=training --canonicalize --verify-core | FileCheck %s
// RUN: cleave-opt %s --normalize-nodes --canonicalize --verify-core | FileCheck %s --check-prefix=FROZEN

// Training: the batch's statistics, each marked with the running one that takes its place in @evaluate; the running
// ones are written at the end, the variance unbiased (8 samples: 8/7).
// CHECK-LABEL: func.func @model
// CHECK: %[[UNBIASED:.*]] = onnx.Constant dense<1.14285719>
// CHECK: onnx.ReduceSum %arg0 {axes = array<i64: 0, 2>}
// CHECK: onnx.Div {{.*}}onnx.batch_statistic = @mean
// CHECK: onnx.Div {{.*}}onnx.batch_statistic = @var
// CHECK: onnx.Mul %{{.*}}, %[[UNBIASED]]
// CHECK: onnx.write @mean, %{{.*}} : tensor<3xf32>
// CHECK-NEXT: onnx.write @var, %{{.*}} : tensor<3xf32>
// CHECK-NEXT: return
// FROZEN-NOT: onnx.ReduceSum
// FROZEN-NOT: onnx.write
onnx.param @mean : tensor<3xf32> "running_statistic" {trainable = false}
onnx.param @var : tensor<3xf32> "running_statistic" {trainable = false}
func.func @model(%x: tensor<2x3x4xf32>, %scale: tensor<3xf32>, %bias: tensor<3xf32>) -> tensor<*xf32> {
  %mean = onnx.read @mean : tensor<3xf32>
  %var = onnx.read @var : tensor<3xf32>
  %y = onnx.node "BatchNormalization"(%x, %scale, %bias, %mean, %var) attributes {domain = "", version = 20 : i64, node_name = "bn", onnx_attributes = {momentum = 0.9 : f32}} : (tensor<2x3x4xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>, tensor<3xf32>) -> tensor<*xf32>
  return %y : tensor<*xf32>
}
