// RUN: cleave-opt %s --recompute --propagate-shardings | FileCheck %s

// A product whose operand is computed again for its gradient: that is split as the product is (columns over tp), though
// gathering the gradient that flows back would move fewer bytes than gathering x.
module attributes {dist.mesh = #dist.mesh<"dp=1,tp=2">, dist.zero_axes = #dist.axes<[dp]>, dist.batch_axes = #dist.axes<[]>} {
  onnx.param @w : tensor<64x32xf32> "parameter" {trainable = true, sharding = #dist.sharding<"[{},{tp}]">}
  // CHECK-LABEL: func.func @final
  // CHECK: onnx.Neg {{.*}}recomputed = 0
  // CHECK: onnx.Contract {{.*}}dist.results = [#dist.sharding<"[{},{tp}]">], {{.*}}phase = backward
  func.func @final(%a: tensor<8x64xf32>, %dy: tensor<8x32xf32>) -> (tensor<8x32xf32>, tensor<64x32xf32>) {
    %w = onnx.read @w : tensor<64x32xf32>
    %x = onnx.Neg %a {place.at = #place.at<phase = forward, segment = 0, recompute = true>, dist.factors = #dist.factors<[], [tp]>} : (tensor<8x64xf32>) -> tensor<8x64xf32>
    %y = onnx.Contract %x, %w {place.at = #place.at<phase = forward, segment = 0>, dist.factors = #dist.factors<[], [tp], []>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<8x64xf32>, tensor<64x32xf32>) -> tensor<8x32xf32> loc("mlp")
    %g = onnx.Mul %y, %dy {place.at = #place.at<phase = backward>} : (tensor<8x32xf32>, tensor<8x32xf32>) -> tensor<8x32xf32>
    %dw = onnx.Contract %x, %g {place.at = #place.at<phase = backward>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 0, 2>, result_indices = array<i64: 1, 2>} : (tensor<8x64xf32>, tensor<8x32xf32>) -> tensor<64x32xf32> loc("mlp")
    return %g, %dw : tensor<8x32xf32>, tensor<64x32xf32>
  }
}
