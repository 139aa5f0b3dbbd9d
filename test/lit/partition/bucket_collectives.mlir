// RUN: cleave-opt %s --bucket-collectives | FileCheck %s
// RUN: cleave-opt %s --bucket-collectives="bytes=20" | FileCheck %s --check-prefix=SMALL

// Two gradients are reduced together as soon as the second exists, before the rest of the backward pass; a reduction
// that the backward pass itself waits for stays where it is.
// SMALL-NOT: dist.bucket
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  // CHECK-LABEL: func.func @final
  func.func @final(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
    // CHECK: %[[G1:.*]] = onnx.Exp
    // CHECK: %[[G2:.*]] = onnx.Sin
    // CHECK-NEXT: %[[R:.*]]:2 = dist.bucket %[[G1]], %[[G2]] {axes = ["dp"], dims = array<i64: -1, -1>, {{.*}}op = #dist.collective<all_reduce>, {{.*}}reduce = #dist.reduction<sum>, why = "first and 1 more"}
    // CHECK: dist.all_reduce
    // CHECK-NEXT: onnx.Neg
    %g1 = onnx.Exp %x {place.at = #place.at<phase = backward>} : (tensor<4xf32>) -> tensor<4xf32>
    %g2 = onnx.Sin %g1 {place.at = #place.at<phase = backward>} : (tensor<4xf32>) -> tensor<4xf32>
    %a = onnx.Cos %g2 {place.at = #place.at<phase = backward>} : (tensor<4xf32>) -> tensor<4xf32>
    %b = dist.all_reduce %a {axes = ["dp"], reduce = #dist.reduction<sum>, place.at = #place.at<phase = backward>} : (tensor<4xf32>) -> tensor<4xf32>
    %c = onnx.Neg %b {place.at = #place.at<phase = backward>} : (tensor<4xf32>) -> tensor<4xf32>
    %r1 = dist.all_reduce %g1 {axes = ["dp"], reduce = #dist.reduction<sum>, why = "first", place.at = #place.at<phase = update>} : (tensor<4xf32>) -> tensor<4xf32>
    %r2 = dist.all_reduce %g2 {axes = ["dp"], reduce = #dist.reduction<sum>, why = "second", place.at = #place.at<phase = update>} : (tensor<4xf32>) -> tensor<4xf32>
    // CHECK: onnx.Abs %[[R]]#0
    // CHECK: onnx.Abs %[[R]]#1
    %s1 = onnx.Abs %r1 {place.at = #place.at<phase = update>} : (tensor<4xf32>) -> tensor<4xf32>
    %s2 = onnx.Abs %r2 {place.at = #place.at<phase = update>} : (tensor<4xf32>) -> tensor<4xf32>
    return %s1, %s2, %c : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }
}
