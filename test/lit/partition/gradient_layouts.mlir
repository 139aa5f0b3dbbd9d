// RUN: cleave-opt %s --propagate-shardings | FileCheck %s
// RUN: sed 's/, dist.gathers_again//' %s | cleave-opt --propagate-shardings | FileCheck %s --check-prefix=KEPT

// Megatron's sequence parallelism: x lies along the sequence over tp and is gathered for two products. Their gradients
// are both partial sums; they are added as such, beside the residual's whole one, and then lie as x does.
module attributes {dist.mesh = #dist.mesh<"dp=1,tp=2">, dist.zero_axes = #dist.axes<[dp]>, dist.batch_axes = #dist.axes<[]>, dist.gathers_again} {
  onnx.param @w : tensor<64x256xf32> "parameter" {trainable = true, sharding = #dist.sharding<"[{},{tp}]">}
  // CHECK-LABEL: func.func @final
  // KEPT-LABEL: func.func @final
  func.func @final(%a: tensor<8x64xf32>, %dy: tensor<8x256xf32>, %dz: tensor<8x256xf32>) -> (tensor<8x64xf32>, tensor<64x256xf32>) {
    %w = onnx.read @w : tensor<64x256xf32>
    %x = onnx.Neg %a {place.at = #place.at<phase = forward>, dist.factors = #dist.factors<[tp], []>} : (tensor<8x64xf32>) -> tensor<8x64xf32>
    // CHECK: %[[WHOLE:.*]] = dist.reshard %{{.*}} from <"[{tp},{}]"> to <"[{},{}]"> {place.at = #place.at<phase = forward>}
    // KEPT-COUNT-1: dist.reshard %{{.*}} from <"[{tp},{}]"> to <"[{},{}]">
    // KEPT-NOT: from <"[{tp},{}]"> to <"[{},{}]"> {place.at = #place.at<phase = backward>}
    // KEPT: onnx.Neg {{.*}}phase = backward
    %y = onnx.Contract %x, %w {place.at = #place.at<phase = forward>, dist.factors = #dist.factors<[], [tp], []>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<8x64xf32>, tensor<64x256xf32>) -> tensor<8x256xf32> loc("mlp")
    %g = onnx.Mul %y, %dy {place.at = #place.at<phase = backward>} : (tensor<8x256xf32>, tensor<8x256xf32>) -> tensor<8x256xf32>
    %h = onnx.Mul %y, %dz {place.at = #place.at<phase = backward>} : (tensor<8x256xf32>, tensor<8x256xf32>) -> tensor<8x256xf32>
    %dx = onnx.Contract %g, %w {place.at = #place.at<phase = backward>, lhs_indices = array<i64: 0, 2>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 1>} : (tensor<8x256xf32>, tensor<64x256xf32>) -> tensor<8x64xf32> loc("mlp")
    %ex = onnx.Contract %h, %w {place.at = #place.at<phase = backward>, lhs_indices = array<i64: 0, 2>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 1>} : (tensor<8x256xf32>, tensor<64x256xf32>) -> tensor<8x64xf32> loc("mlp")
    // CHECK: dist.reshard %{{.*}} from <"[{tp},{}]"> to <"[{},{}]"> {place.at = #place.at<phase = backward>}
    %dw = onnx.Contract %x, %g {place.at = #place.at<phase = backward>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 0, 2>, result_indices = array<i64: 1, 2>} : (tensor<8x64xf32>, tensor<8x256xf32>) -> tensor<64x256xf32> loc("mlp")
    %r = onnx.Neg %x {place.at = #place.at<phase = backward>} : (tensor<8x64xf32>) -> tensor<8x64xf32>
    // CHECK: %[[PARTIAL:.*]] = onnx.Sum {{.*}}dist.results = [#dist.sharding<"[{},{}] partial(tp)">]
    // CHECK: %[[SUMMED:.*]] = dist.reshard %[[PARTIAL]] from <"[{},{}] partial(tp)"> to <"[{tp},{}]">
    // CHECK: onnx.Sum %{{.*}}, %[[SUMMED]] {{.*}}dist.results = [#dist.sharding<"[{tp},{}]">]
    %s = onnx.Sum %r, %dx, %ex {place.at = #place.at<phase = backward>} : (tensor<8x64xf32>, tensor<8x64xf32>, tensor<8x64xf32>) -> tensor<8x64xf32>
    return %s, %dw : tensor<8x64xf32>, tensor<64x256xf32>
  }
}
