// RUN: cleave-opt %s --recompute | FileCheck %s
// RUN: cleave-opt %s --recompute=except-last | FileCheck %s --check-prefixes=CHECK,LAST

// Segment 0 is dropped and computed again (%b reads %a), before the first gradient that needs it. %c is read by another
// segment: kept. Of segment 1 only the marked %d is done again, from %c; %e stays. The gradient of another stage (%far)
// reads what it was sent.
// CHECK-LABEL: func.func @accumulate(
// CHECK: [[A:%.+]] = onnx.Tanh %arg0 {{.*}}place.at = #place.at<phase = forward
// CHECK: [[C:%.+]] = onnx.Tanh {{.*}}place.node = "c"
// CHECK: [[E:%.+]] = onnx.Tanh {{.*}}place.node = "e"
// CHECK: [[D2:%.+]] = onnx.Exp [[C]] {{.*}}phase = backward, {{.*}}recomputed = 1
// CHECK-NEXT: onnx.Mul [[E]], [[D2]]
// CHECK-NEXT: onnx.Mul [[C]]
// CHECK-NEXT: [[A2:%.+]] = onnx.Tanh %arg0 {{.*}}phase = backward, {{.*}}recomputed = 0
// CHECK-NEXT: [[B2:%.+]] = onnx.Abs [[A2]] {{.*}}phase = backward, {{.*}}recomputed = 0
// CHECK-NEXT: onnx.Mul {{.*}}, [[B2]]
// CHECK-NEXT: onnx.Mul {{.*}}, [[A]] {{.*}}place.at = #place.at<phase = backward, stage = 1
// CHECK-NOT: segment =
// LAST-LABEL: func.func @accumulate_last(
// LAST-NOT: onnx.Tanh {{.*}}"backward"
module {
  func.func @accumulate(%x: tensor<4xf32>) -> tensor<4xf32> {
    %a = onnx.Tanh %x {place.at = #place.at<phase = forward, stage = 0, segment = 0, recompute = true>} : (tensor<4xf32>) -> tensor<4xf32>
    %b = onnx.Abs %a {place.at = #place.at<phase = forward, stage = 0, segment = 0, recompute = true>} : (tensor<4xf32>) -> tensor<4xf32>
    %c = onnx.Tanh %b {place.node = "c", place.at = #place.at<phase = forward, stage = 0, segment = 0, recompute = true>} : (tensor<4xf32>) -> tensor<4xf32>
    %d = onnx.Exp %c {place.at = #place.at<phase = forward, stage = 0, segment = 1, recompute = true>} : (tensor<4xf32>) -> tensor<4xf32>
    %e = onnx.Tanh %d {place.node = "e", place.at = #place.at<phase = forward, stage = 0, segment = 1>} : (tensor<4xf32>) -> tensor<4xf32>
    %de = onnx.Mul %e, %d {place.at = #place.at<phase = backward, stage = 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %dc = onnx.Mul %c, %de {place.at = #place.at<phase = backward, stage = 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %db = onnx.Mul %dc, %b {place.at = #place.at<phase = backward, stage = 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %far = onnx.Mul %db, %a {place.at = #place.at<phase = backward, stage = 1>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %far : tensor<4xf32>
  }

  // @w is read once for computing segment 0 again and for its gradients: what ZeRO-3 gathers, it gathers for both. @both
  // is read by another segment, too, and read where it is used.
  // CHECK-LABEL: func.func @final(
  // CHECK: [[BOTH:%.+]] = onnx.read @both
  // CHECK: [[W:%.+]] = onnx.read @w {place.at = #place.at<phase = backward>}
  // CHECK: onnx.Mul %arg0, [[W]] {{.*}}phase = backward, {{.*}}recomputed = 0
  // CHECK: onnx.Mul [[W]], {{.*}}phase = backward
  // CHECK: onnx.Mul [[BOTH]], {{.*}}phase = backward
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4xf32>
    %both = onnx.read @both {place.at = #place.at<phase = forward>} : tensor<4xf32>
    %a = onnx.Mul %x, %w {place.at = #place.at<phase = forward, stage = 0, segment = 0, recompute = true>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %b = onnx.Tanh %a {place.at = #place.at<phase = forward, stage = 0, segment = 0, recompute = true>} : (tensor<4xf32>) -> tensor<4xf32>
    %c = onnx.Mul %b, %both {place.at = #place.at<phase = forward, stage = 0, segment = 0, recompute = true>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %d = onnx.Mul %c, %both {place.at = #place.at<phase = forward, stage = 0, segment = 1>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %da = onnx.Mul %d, %a {place.at = #place.at<phase = backward, stage = 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %dx = onnx.Mul %w, %da {place.at = #place.at<phase = backward, stage = 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %db = onnx.Mul %both, %dx {place.at = #place.at<phase = backward, stage = 0>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %db : tensor<4xf32>
  }
  onnx.param @w : tensor<4xf32> "parameter" {trainable = true}
  onnx.param @both : tensor<4xf32> "parameter" {trainable = true}
}
