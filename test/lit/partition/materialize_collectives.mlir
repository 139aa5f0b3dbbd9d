// RUN: cleave-opt %s --propagate-shardings --materialize-collectives --verify-partition | FileCheck %s

// Everything is local afterwards; ops that know their global shape are told where their part lies.
// CHECK: module attributes {dist.mesh = #dist.mesh<"tp=4">}
module attributes {dist.mesh = #dist.mesh<"tp=4">, dist.zero_axes = #dist.axes<[]>, dist.batch_axes = #dist.axes<[]>} {
  // CHECK: onnx.param @table : tensor<16x8xf32> {{.*}}sharding = #dist.sharding<"[{tp},{}]">
  onnx.param @table : tensor<16x8xf32> "parameter" {trainable = true, sharding = #dist.sharding<"[{tp},{}]">}
  // CHECK-LABEL: func.func @final
  func.func @final(%ids: tensor<6xi64>) -> tensor<6x2x4xf32> {
    // CHECK: %[[T:.*]] = onnx.read @table : tensor<4x8xf32>
    %t = onnx.read @table : tensor<16x8xf32>
    // CHECK: %[[P:.*]] = onnx.Gather %[[T]], %{{.*}} {axis = 0 : i64, global_rows = 16 : i64, shard_axes = ["tp"]} : (tensor<4x8xf32>, tensor<6xi64>) -> tensor<6x8xf32>
    %e = onnx.Gather %t, %ids {axis = 0 : i64, dist.factors = #dist.factors<[tp], [], []>} : (tensor<16x8xf32>, tensor<6xi64>) -> tensor<6x8xf32>
    // CHECK: %[[E:.*]] = dist.reduce_scatter %[[P]] {axes = ["tp"], dim = 1 : i64, {{.*}}reduce = #dist.reduction<sum>, why = "partial sums of a Gather over tp, each keeps its part"} : (tensor<6x8xf32>) -> tensor<6x2xf32>
    // CHECK: %[[I:.*]] = onnx.Iota {{.*}}dim = 1 : i64, {{.*}}shard_axes = ["tp"], type = tensor<6x2xf32>} : () -> tensor<6x2xf32>
    %i = onnx.Iota {type = tensor<6x8xf32>, dim = 1 : i64} : () -> tensor<6x8xf32>
    // CHECK: onnx.Add %[[E]], %[[I]]
    %s = onnx.Add %e, %i {dist.factors = #dist.factors<[], [tp]>} : (tensor<6x8xf32>, tensor<6x8xf32>) -> tensor<6x8xf32>
    // The major of two dimensions has 2 entries: it cannot be split over 4 devices.
    // CHECK: dist.all_gather
    // CHECK: onnx.Reshape {{.*}}shape = array<i64: 6, 2, 4>
    %r = onnx.Reshape %s {shape = array<i64: 6, 2, 4>, dist.factors = #dist.factors<[], [tp], []>} : (tensor<6x8xf32>) -> tensor<6x2x4xf32>
    return %r : tensor<6x2x4xf32>
  }
}
