// RUN: cleave-opt %s --recompute | FileCheck %s
// RUN: cleave-opt %s --recompute=except-last | FileCheck %s --check-prefixes=CHECK,LAST

// Segment 0 is dropped and computed again (%b reads %a), before the first gradient that needs it. %c is read by another
// segment: kept. Of segment 1 only the marked %d is done again, from %c; %e stays. The gradient of another stage (%far)
// reads what it was sent.
// CHECK-LABEL: func.func @accumulate(
// CHECK: [[A:%.+]] = onnx.Tanh %arg0 {cleave.phase = "forward"
// CHECK: [[C:%.+]] = onnx.Tanh {{.*}}{cleave.phase = "forward", cleave.stage = 0 : i64, onnx.name = "c"}
// CHECK: [[E:%.+]] = onnx.Tanh {{.*}}onnx.name = "e"
// CHECK: [[D2:%.+]] = onnx.Exp [[C]] {cleave.again = 1 : i64, cleave.phase = "backward"
// CHECK-NEXT: onnx.Mul [[E]], [[D2]]
// CHECK-NEXT: onnx.Mul [[C]]
// CHECK-NEXT: [[A2:%.+]] = onnx.Tanh %arg0 {cleave.again = 0 : i64, cleave.phase = "backward"
// CHECK-NEXT: [[B2:%.+]] = onnx.Abs [[A2]] {cleave.again = 0 : i64, cleave.phase = "backward"
// CHECK-NEXT: onnx.Mul {{.*}}, [[B2]]
// CHECK-NEXT: onnx.Mul {{.*}}, [[A]] {cleave.phase = "backward", cleave.stage = 1
// CHECK-NOT: cleave.segment
// LAST-LABEL: func.func @accumulate_last(
// LAST-NOT: onnx.Tanh {{.*}}"backward"
module {
  func.func @accumulate(%x: tensor<4xf32>) -> tensor<4xf32> {
    %a = onnx.Tanh %x {cleave.phase = "forward", cleave.stage = 0 : i64, cleave.segment = 0 : i64, cleave.again} : (tensor<4xf32>) -> tensor<4xf32>
    %b = onnx.Abs %a {cleave.phase = "forward", cleave.stage = 0 : i64, cleave.segment = 0 : i64, cleave.again} : (tensor<4xf32>) -> tensor<4xf32>
    %c = onnx.Tanh %b {cleave.phase = "forward", cleave.stage = 0 : i64, cleave.segment = 0 : i64, cleave.again, onnx.name = "c"} : (tensor<4xf32>) -> tensor<4xf32>
    %d = onnx.Exp %c {cleave.phase = "forward", cleave.stage = 0 : i64, cleave.segment = 1 : i64, cleave.again} : (tensor<4xf32>) -> tensor<4xf32>
    %e = onnx.Tanh %d {cleave.phase = "forward", cleave.stage = 0 : i64, cleave.segment = 1 : i64, onnx.name = "e"} : (tensor<4xf32>) -> tensor<4xf32>
    %de = onnx.Mul %e, %d {cleave.phase = "backward", cleave.stage = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %dc = onnx.Mul %c, %de {cleave.phase = "backward", cleave.stage = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %db = onnx.Mul %dc, %b {cleave.phase = "backward", cleave.stage = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %far = onnx.Mul %db, %a {cleave.phase = "backward", cleave.stage = 1 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %far : tensor<4xf32>
  }

  // @w is read once for computing segment 0 again and for its gradients: what ZeRO-3 gathers, it gathers for both. @both
  // is read by another segment, too, and read where it is used.
  // CHECK-LABEL: func.func @final(
  // CHECK: [[BOTH:%.+]] = onnx.read @both
  // CHECK: [[W:%.+]] = onnx.read @w {cleave.phase = "backward"}
  // CHECK: onnx.Mul %arg0, [[W]] {cleave.again = 0 : i64, cleave.phase = "backward"
  // CHECK: onnx.Mul [[W]], {{.*}}cleave.phase = "backward"
  // CHECK: onnx.Mul [[BOTH]], {{.*}}cleave.phase = "backward"
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    %w = onnx.read @w {cleave.phase = "forward"} : tensor<4xf32>
    %both = onnx.read @both {cleave.phase = "forward"} : tensor<4xf32>
    %a = onnx.Mul %x, %w {cleave.phase = "forward", cleave.stage = 0 : i64, cleave.segment = 0 : i64, cleave.again} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %b = onnx.Tanh %a {cleave.phase = "forward", cleave.stage = 0 : i64, cleave.segment = 0 : i64, cleave.again} : (tensor<4xf32>) -> tensor<4xf32>
    %c = onnx.Mul %b, %both {cleave.phase = "forward", cleave.stage = 0 : i64, cleave.segment = 0 : i64, cleave.again} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %d = onnx.Mul %c, %both {cleave.phase = "forward", cleave.stage = 0 : i64, cleave.segment = 1 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %da = onnx.Mul %d, %a {cleave.phase = "backward", cleave.stage = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %dx = onnx.Mul %w, %da {cleave.phase = "backward", cleave.stage = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %db = onnx.Mul %both, %dx {cleave.phase = "backward", cleave.stage = 0 : i64} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %db : tensor<4xf32>
  }
  onnx.param @w : tensor<4xf32> "parameter" {trainable = true}
  onnx.param @both : tensor<4xf32> "parameter" {trainable = true}
}
