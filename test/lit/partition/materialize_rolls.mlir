// Along a dimension of which every device holds one entry a roll is a message to a neighbour; along one that is whole it
// is two slices in exchanged places.
// RUN: cleave-opt %s --split-input-file --materialize-collectives | FileCheck %s

// CHECK-LABEL: func.func @final
// CHECK: dist.shift %{{.*}} {axes = ["cp"], {{.*}}distance = 3 : i64, {{.*}}why = {{.*}}} : (tensor<1x8xf32>) -> tensor<1x8xf32>
module attributes {dist.mesh = #dist.mesh<"cp=4">} {
  func.func @final(%x: tensor<4x8xf32> {onnx.name = "x", dist.layout = #dist.sharding<"[{cp},{}]">}) -> tensor<4x8xf32> {
    %y = onnx.Roll %x {dim = 0 : i64, distance = -1 : i64, dist.factors = #dist.factors<[cp], []>, dist.results = [#dist.sharding<"[{cp},{}]">]} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %y : tensor<4x8xf32>
  }
}
// -----
// CHECK-LABEL: func.func @final
// CHECK: %[[LAST:.*]] = onnx.Slice %{{.*}} sizes = array<i64: 1, 8>, starts = array<i64: 3, 0>
// CHECK: %[[FIRST:.*]] = onnx.Slice %{{.*}} sizes = array<i64: 3, 8>, starts = array<i64: 0, 0>
// CHECK: onnx.Concat %[[LAST]], %[[FIRST]]
module attributes {dist.mesh = #dist.mesh<"cp=4">} {
  func.func @final(%x: tensor<4x8xf32> {onnx.name = "x", dist.layout = #dist.sharding<"[{},{}]">}) -> tensor<4x8xf32> {
    %y = onnx.Roll %x {dim = 0 : i64, distance = 1 : i64, dist.factors = #dist.factors<[], []>, dist.results = [#dist.sharding<"[{},{}]">]} : (tensor<4x8xf32>) -> tensor<4x8xf32>
    return %y : tensor<4x8xf32>
  }
}
