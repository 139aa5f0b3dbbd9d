// RUN: cleave-opt %s --propagate-shardings | FileCheck %s

// A column-parallel product: backward takes its split from what the operands have; the gradient of x comes out partial
// over tp, that of w over dp, and is wanted as the optimizer's state lies.
module attributes {dist.mesh = #dist.mesh<"dp=2,tp=2">, dist.zero_axes = #dist.axes<[dp]>, dist.batch_axes = #dist.axes<[dp]>} {
  onnx.param @w : tensor<64x256xf32> "parameter" {trainable = true, sharding = #dist.sharding<"[{},{tp}]">, dist.update_sharding = #dist.sharding<"[{dp},{tp}]">}
  onnx.param @"exp_avg/w" : tensor<64x256xf32> "optimizer_state" {trainable = false, of = @w, sharding = #dist.sharding<"[{dp},{tp}]">}
  // CHECK-LABEL: func.func @final
  // CHECK-SAME:    tensor<8x64xf32> {dist.layout = #dist.sharding<"[{dp},{}]">}
  func.func @final(%x: tensor<8x64xf32>, %dy: tensor<8x256xf32>) -> tensor<8x64xf32> {
    %w = onnx.read @w : tensor<64x256xf32>
    // CHECK: onnx.Contract {{.*}}dist.factors = #dist.factors<[dp], [tp], []>, dist.results = [#dist.sharding<"[{dp},{tp}]">]
    %y = onnx.Contract %x, %w {place.at = #place.at<phase = forward>, dist.factors = #dist.factors<[dp], [tp], []>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<8x64xf32>, tensor<64x256xf32>) -> tensor<8x256xf32>
    %g = onnx.Mul %y, %dy {place.at = #place.at<phase = backward>} : (tensor<8x256xf32>, tensor<8x256xf32>) -> tensor<8x256xf32>
    // CHECK: %[[DX:.*]] = onnx.Contract {{.*}} dist.results = [#dist.sharding<"[{dp},{}] partial(tp)">]
    %dx = onnx.Contract %g, %w {place.at = #place.at<phase = backward>, lhs_indices = array<i64: 0, 2>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 1>} : (tensor<8x256xf32>, tensor<64x256xf32>) -> tensor<8x64xf32>
    // CHECK: %[[DW:.*]] = onnx.Contract {{.*}} dist.results = [#dist.sharding<"[{},{tp}] partial(dp)">]
    %dw = onnx.Contract %x, %g {place.at = #place.at<phase = backward>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 0, 2>, result_indices = array<i64: 1, 2>} : (tensor<8x64xf32>, tensor<8x256xf32>) -> tensor<64x256xf32>
    %m = onnx.read @"exp_avg/w" : tensor<64x256xf32>
    // CHECK: %[[R:.*]] = dist.reshard %[[DW]] from <"[{},{tp}] partial(dp)"> to <"[{dp},{tp}]">
    // CHECK: onnx.Add %{{.*}}, %[[R]]
    %n = onnx.Add %m, %dw {place.at = #place.at<phase = update>} : (tensor<64x256xf32>, tensor<64x256xf32>) -> tensor<64x256xf32>
    onnx.write @"exp_avg/w", %n {place.at = #place.at<phase = update>} : tensor<64x256xf32>
    // CHECK: dist.reshard %[[DX]] from <"[{dp},{}] partial(tp)"> to <"[{},{}]">
    return %dx : tensor<8x64xf32>
  }
}
