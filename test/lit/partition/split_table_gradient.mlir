// RUN: cleave-opt %s --propagate-shardings | FileCheck %s

// Of a table that lies split by its rows every device adds up its own rows' gradients: not all rows', of which the update
// would take its part.
// CHECK: onnx.param @"accumulator/table" {{.*}}sharding = #dist.sharding<"[{tp},{}]">
// CHECK-LABEL: func.func @accumulate
// CHECK: onnx.ScatterAdd {{.*}}#dist.sharding<"[{tp},{}]">
// CHECK-NOT: dist.reshard
// CHECK: return
module attributes {dist.mesh = #dist.mesh<"tp=2">, dist.zero_axes = #dist.axes<[]>, dist.batch_axes = #dist.axes<[]>} {
  onnx.param @table : tensor<100x8xf32> "parameter" {trainable = true, fill = 0.0, sharding = #dist.sharding<"[{tp},{}]">}
  onnx.param @"accumulator/table" : tensor<100x8xf32> "accumulator" {trainable = false, fill = 0.0, of = @table}
  func.func @accumulate(%i: tensor<4xi64>, %x: tensor<4x8xf32>) {
    %g = onnx.ScatterAdd %i, %x {axis = 0 : i64, place.at = #place.at<phase = backward>, rows = 100 : i64} : (tensor<4xi64>, tensor<4x8xf32>) -> tensor<100x8xf32>
    %a = onnx.read @"accumulator/table" : tensor<100x8xf32>
    %t = onnx.Add %a, %g {place.at = #place.at<phase = backward>} : (tensor<100x8xf32>, tensor<100x8xf32>) -> tensor<100x8xf32>
    onnx.write @"accumulator/table", %t {place.at = #place.at<phase = backward>} : tensor<100x8xf32>
    return
  }
}
