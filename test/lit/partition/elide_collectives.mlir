// RUN: cleave-opt %s --elide-collectives | FileCheck %s

module attributes {dist.mesh = #dist.mesh<"dp=2,tp=2,one=1">} {
  // CHECK-LABEL: func.func @undone
  // CHECK-NEXT:    return %arg0
  func.func @undone(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = dist.all_gather %x {axes = ["tp"], dim = 0 : i64} : (tensor<4xf32>) -> tensor<8xf32>
    %1 = dist.own_part %0 {axes = ["tp"], dim = 0 : i64} : (tensor<8xf32>) -> tensor<4xf32>
    %2 = dist.all_reduce %1 {axes = ["one"], reduce = #dist.reduction<sum>} : (tensor<4xf32>) -> tensor<4xf32>
    return %2 : tensor<4xf32>
  }
  // CHECK-LABEL: func.func @repeated
  // CHECK-NEXT:    onnx.Broadcast %arg0 {dims = array<i64: 1>, place.at = #place.at<phase = backward>, shape = array<i64: 4, 3>} : (tensor<3xf32>) -> tensor<4x3xf32>
  // CHECK-NEXT:    return
  func.func @repeated(%x: tensor<3xf32>) -> tensor<4x3xf32> {
    %0 = onnx.Broadcast %x {place.at = #place.at<phase = backward>, dims = array<i64: 1>, shape = array<i64: 8, 3>} : (tensor<3xf32>) -> tensor<8x3xf32>
    %1 = dist.own_part %0 {axes = ["dp"], dim = 0 : i64} : (tensor<8x3xf32>) -> tensor<4x3xf32>
    return %1 : tensor<4x3xf32>
  }
  // The backward pass repeats its part of an activation itself, on its own stage.
  // CHECK-LABEL: func.func @repeated_in_the_backward_pass
  // CHECK-NEXT:    onnx.Broadcast %arg0 {dims = array<i64: 1>, place.at = #place.at<phase = backward, stage = 1>
  // CHECK-NEXT:    return
  func.func @repeated_in_the_backward_pass(%x: tensor<3xf32>) -> tensor<4x3xf32> {
    %0 = onnx.Broadcast %x {place.at = #place.at<phase = forward, stage = 0>, dims = array<i64: 1>, shape = array<i64: 8, 3>} : (tensor<3xf32>) -> tensor<8x3xf32>
    %1 = dist.own_part %0 {axes = ["dp"], place.at = #place.at<phase = backward, stage = 1>, dim = 0 : i64} : (tensor<8x3xf32>) -> tensor<4x3xf32>
    return %1 : tensor<4x3xf32>
  }
  // A part of what is not repeated.
  // CHECK-LABEL: func.func @own
  // CHECK:         dist.own_part
  func.func @own(%x: tensor<8xf32>) -> tensor<4x3xf32> {
    %0 = onnx.Broadcast %x {dims = array<i64: 0>, shape = array<i64: 8, 3>} : (tensor<8xf32>) -> tensor<8x3xf32>
    %1 = dist.own_part %0 {axes = ["dp"], dim = 0 : i64} : (tensor<8x3xf32>) -> tensor<4x3xf32>
    return %1 : tensor<4x3xf32>
  }
  // CHECK-LABEL: func.func @kept
  // CHECK:         dist.all_gather
  // CHECK:         dist.own_part
  func.func @kept(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = dist.all_gather %x {axes = ["tp"], dim = 0 : i64} : (tensor<4xf32>) -> tensor<8xf32>
    %1 = dist.own_part %0 {axes = ["dp"], dim = 0 : i64} : (tensor<8xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
  // CHECK-LABEL: func.func @joined
  // CHECK-NEXT:    dist.all_reduce %arg0 {axes = ["dp", "tp"]
  // CHECK-NEXT:    return
  func.func @joined(%x: tensor<4xf32>) -> tensor<4xf32> {
    %0 = dist.all_reduce %x {axes = ["tp"], reduce = #dist.reduction<sum>} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = dist.all_reduce %0 {axes = ["dp"], reduce = #dist.reduction<sum>} : (tensor<4xf32>) -> tensor<4xf32>
    return %1 : tensor<4xf32>
  }
  // Both readers take the same part of a chain on what was gathered: nothing is gathered, nothing computed whole.
  // CHECK-LABEL: func.func @in_parts
  // CHECK-NEXT:    %[[HALF:.*]] = onnx.Constant {place.at = #place.at<phase = forward>} dense<5.000000e-01> : tensor<4xf32>
  // CHECK-NEXT:    %[[MUL:.*]] = onnx.Mul %arg0, %[[HALF]] {place.at = #place.at<phase = forward>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  // CHECK-NEXT:    %[[TANH:.*]] = onnx.Tanh %[[MUL]] {place.at = #place.at<phase = forward>} : (tensor<4xf32>) -> tensor<4xf32>
  // CHECK-NEXT:    return %[[TANH]], %[[MUL]]
  func.func @in_parts(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
    %0 = dist.all_gather %x {axes = ["tp"], place.at = #place.at<phase = forward>, dim = 0 : i64} : (tensor<4xf32>) -> tensor<8xf32>
    %half = onnx.Constant {place.at = #place.at<phase = forward>} dense<5.000000e-01> : tensor<8xf32>
    %1 = onnx.Mul %0, %half {place.at = #place.at<phase = forward>} : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
    %2 = onnx.Tanh %1 {place.at = #place.at<phase = forward>} : (tensor<8xf32>) -> tensor<8xf32>
    %3 = dist.own_part %2 {axes = ["tp"], place.at = #place.at<phase = forward>, dim = 0 : i64} : (tensor<8xf32>) -> tensor<4xf32>
    %4 = dist.own_part %1 {axes = ["tp"], place.at = #place.at<phase = backward>, dim = 0 : i64} : (tensor<8xf32>) -> tensor<4xf32>
    return %3, %4 : tensor<4xf32>, tensor<4xf32>
  }
  // A bias is repeated for the part, of which it has its own.
  // CHECK-LABEL: func.func @bias_in_parts
  // CHECK-NEXT:    %[[PART:.*]] = dist.own_part %arg1 {axes = ["tp"], dim = 0 : i64} : (tensor<8xf32>) -> tensor<4xf32>
  // CHECK-NEXT:    %[[WIDE:.*]] = onnx.Broadcast %[[PART]] {{.*}} (tensor<4xf32>) -> tensor<2x4xf32>
  // CHECK-NEXT:    %[[SUM:.*]] = onnx.Add %arg0, %[[WIDE]] : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  // CHECK-NEXT:    return %[[SUM]]
  func.func @bias_in_parts(%x: tensor<2x4xf32>, %bias: tensor<8xf32>) -> tensor<2x4xf32> {
    %0 = dist.all_gather %x {axes = ["tp"], dim = 1 : i64} : (tensor<2x4xf32>) -> tensor<2x8xf32>
    %1 = onnx.Broadcast %bias {dims = array<i64: 1>, shape = array<i64: 2, 8>} : (tensor<8xf32>) -> tensor<2x8xf32>
    %2 = onnx.Add %0, %1 : (tensor<2x8xf32>, tensor<2x8xf32>) -> tensor<2x8xf32>
    %3 = dist.own_part %2 {axes = ["tp"], dim = 1 : i64} : (tensor<2x8xf32>) -> tensor<2x4xf32>
    return %3 : tensor<2x4xf32>
  }
  // One reader wants all of it.
  // CHECK-LABEL: func.func @also_whole
  // CHECK:         onnx.Tanh {{.*}} -> tensor<8xf32>
  // CHECK:         dist.own_part
  func.func @also_whole(%x: tensor<4xf32>) -> (tensor<8xf32>, tensor<4xf32>) {
    %0 = dist.all_gather %x {axes = ["tp"], dim = 0 : i64} : (tensor<4xf32>) -> tensor<8xf32>
    %1 = onnx.Tanh %0 : (tensor<8xf32>) -> tensor<8xf32>
    %2 = dist.own_part %1 {axes = ["tp"], dim = 0 : i64} : (tensor<8xf32>) -> tensor<4xf32>
    return %1, %2 : tensor<8xf32>, tensor<4xf32>
  }
  // Terms of a gradient that come back split alike are summed as they are made, and exchanged once.
  // CHECK-LABEL: func.func @terms
  // CHECK-NEXT:    %[[TWO:.*]] = onnx.Add %arg0, %arg1 {place.at = #place.at<phase = backward>} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT:    %[[ALL:.*]] = onnx.Add %[[TWO]], %arg2 {place.at = #place.at<phase = backward>} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  // CHECK-NEXT:    %[[SUM:.*]] = dist.all_to_all %[[ALL]] {axes = ["tp"], dim = 0 : i64, place.at = #place.at<phase = backward>, split_dim = 1 : i64, why = "first"}
  // CHECK-NEXT:    return %[[SUM]]
  func.func @terms(%x: tensor<4x8xf32>, %y: tensor<4x8xf32>, %z: tensor<4x8xf32>) -> tensor<8x4xf32> {
    %0 = dist.all_to_all %x {axes = ["tp"], place.at = #place.at<phase = backward>, dim = 0 : i64, split_dim = 1 : i64, why = "first"} : (tensor<4x8xf32>) -> tensor<8x4xf32>
    %1 = dist.all_to_all %y {axes = ["tp"], place.at = #place.at<phase = backward>, dim = 0 : i64, split_dim = 1 : i64, why = "second"} : (tensor<4x8xf32>) -> tensor<8x4xf32>
    %2 = onnx.Add %0, %1 {place.at = #place.at<phase = backward>} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    %3 = dist.all_to_all %z {axes = ["tp"], place.at = #place.at<phase = backward>, dim = 0 : i64, split_dim = 1 : i64} : (tensor<4x8xf32>) -> tensor<8x4xf32>
    %4 = onnx.Add %2, %3 {place.at = #place.at<phase = backward>} : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
    return %4 : tensor<8x4xf32>
  }
  // CHECK-LABEL: func.func @partial_terms
  // CHECK-NEXT:    %[[TWO:.*]] = onnx.Add %arg0, %arg1
  // CHECK-NEXT:    %[[SUM:.*]] = dist.all_reduce %[[TWO]]
  // CHECK-NEXT:    return %[[SUM]]
  func.func @partial_terms(%x: tensor<4xf32>, %y: tensor<4xf32>) -> tensor<4xf32> {
    %0 = dist.all_reduce %x {axes = ["tp"], reduce = #dist.reduction<sum>} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = dist.all_reduce %y {axes = ["tp"], reduce = #dist.reduction<sum>} : (tensor<4xf32>) -> tensor<4xf32>
    %2 = onnx.Add %0, %1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %2 : tensor<4xf32>
  }
  // Not the largest of either; not over other axes; not where somebody reads one of them.
  // CHECK-LABEL: func.func @other_terms
  // CHECK-COUNT-6: dist.all_reduce
  // CHECK-NOT:     dist.all_reduce
  func.func @other_terms(%x: tensor<4xf32>, %y: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
    %0 = dist.all_reduce %x {axes = ["tp"], reduce = #dist.reduction<max>} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = dist.all_reduce %y {axes = ["tp"], reduce = #dist.reduction<max>} : (tensor<4xf32>) -> tensor<4xf32>
    %2 = onnx.Add %0, %1 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %3 = dist.all_reduce %x {axes = ["tp"], reduce = #dist.reduction<sum>} : (tensor<4xf32>) -> tensor<4xf32>
    %4 = dist.all_reduce %y {axes = ["dp"], reduce = #dist.reduction<sum>} : (tensor<4xf32>) -> tensor<4xf32>
    %5 = onnx.Add %3, %4 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    %6 = dist.all_reduce %x {axes = ["tp"], reduce = #dist.reduction<sum>} : (tensor<4xf32>) -> tensor<4xf32>
    %7 = dist.all_reduce %y {axes = ["tp"], reduce = #dist.reduction<sum>} : (tensor<4xf32>) -> tensor<4xf32>
    %8 = onnx.Add %6, %7 : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %2, %5, %8, %7 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
  }
}
