// RUN: cleave-opt %s --propagate-shardings | FileCheck %s

// Below ZeRO-2 an accumulator holds each device's own sum: no communication in @accumulate, one reduction in @final.
// CHECK: onnx.param @"accumulator/w" {{.*}}sharding = #dist.sharding<"[{}] partial(dp)">
module attributes {dist.mesh = #dist.mesh<"dp=2">, dist.zero_axes = #dist.axes<[]>, dist.batch_axes = #dist.axes<[dp]>} {
  onnx.param @"accumulator/w" : tensor<4xf32> "accumulator" {trainable = false, fill = 0.0}
  // CHECK-LABEL: func.func @final
  // CHECK:         %[[TOTAL:.*]] = onnx.Add {{.*}}partial(dp)
  // CHECK:         %[[SUM:.*]] = dist.reshard %[[TOTAL]] from <"[{}] partial(dp)"> to <"[{}]">
  // CHECK:         return %[[SUM]]
  func.func @final(%x: tensor<8x4xf32>) -> tensor<4xf32> {
    %g = onnx.ReduceSum %x {axes = array<i64: 0>, place.at = #place.at<phase = backward>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %a = onnx.read @"accumulator/w" : tensor<4xf32>
    %t = onnx.Add %a, %g {place.at = #place.at<phase = update>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %z = onnx.Constant {place.at = #place.at<phase = update>} dense<0.0> : tensor<4xf32>
    onnx.write @"accumulator/w", %z {place.at = #place.at<phase = update>} : tensor<4xf32>
    return %t : tensor<4xf32>
  }
  // CHECK-LABEL: func.func @accumulate
  // CHECK-NOT:     dist.reshard
  func.func @accumulate(%x: tensor<8x4xf32>) {
    %a = onnx.read @"accumulator/w" : tensor<4xf32>
    %g = onnx.ReduceSum %x {axes = array<i64: 0>, place.at = #place.at<phase = backward>} : (tensor<8x4xf32>) -> tensor<4xf32>
    %t = onnx.Add %a, %g {place.at = #place.at<phase = backward>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    onnx.write @"accumulator/w", %t {place.at = #place.at<phase = backward>} : tensor<4xf32>
    return
  }
}
