// RUN: cleave-opt %s --lower-precision=type=bf16 | FileCheck %s
// RUN: cleave-opt %s --lower-precision=type=f16 | FileCheck %s --check-prefix=HALF
// RUN: not cleave-opt %s --lower-precision=type=f32 2>&1 | FileCheck %s --check-prefix=WRONG
// WRONG: type must be bf16 or f16, is 'f32'

// A parameter that a product reads is low, beside its master; a bias stays as it is.
// CHECK:       onnx.param @w : tensor<8x8xbf16> "parameter" {{.*}}trainable = true
// CHECK:       onnx.param @"master/w" : tensor<8x8xf32> "optimizer_state" {{{.*}}of = @w{{.*}}trainable = false}
// CHECK:       onnx.param @b : tensor<8xf32> "parameter"
// CHECK-LABEL: func.func @final
// An operand is cast once, whatever reads it; the parameter is not cast at all.
// CHECK:       %[[X:.*]] = onnx.Cast %arg0 {{.*}} : (tensor<4x8xf32>) -> tensor<4x8xbf16>
// CHECK:       %[[W:.*]] = onnx.read @w {{.*}} : tensor<8x8xbf16>
// CHECK:       %[[YL:.*]] = onnx.Contract %[[X]], %[[W]] {{.*}} -> tensor<4x8xbf16>
// CHECK:       %[[Y:.*]] = onnx.Cast %[[YL]] {{.*}} -> tensor<4x8xf32>
// CHECK:       onnx.Broadcast %{{.*}} -> tensor<4x8xf32>
// CHECK:       %[[S:.*]] = onnx.Add %[[Y]]
// CHECK:       %[[T:.*]] = onnx.Tanh %[[S]]
// Before movement, not after it.
// CHECK:       %[[TL:.*]] = onnx.Cast %[[T]] {{.*}} -> tensor<4x8xbf16>
// CHECK:       %[[R:.*]] = onnx.Transpose %[[TL]] {{.*}} -> tensor<8x4xbf16>
// CHECK:       %[[ZL:.*]] = onnx.Contract %[[R]], %[[W]] {{.*}} -> tensor<4x8xbf16>
// CHECK:       onnx.ReduceSum %{{.*}} : (tensor<4x8xf32>) -> tensor<f32>
// A gradient of a parameter is the sum before rounding; what flows on to other products is low.
// CHECK:       %[[DW:.*]] = onnx.Contract %[[X]], %[[ZL]] {{.*}} : (tensor<4x8xbf16>, tensor<4x8xbf16>) -> tensor<8x8xf32>
// CHECK:       %[[OLD:.*]] = onnx.read @"master/w" {{.*}} : tensor<8x8xf32>
// CHECK:       %[[NEW:.*]] = onnx.Sub %[[OLD]], %[[DW]]
// CHECK:       %[[LOW:.*]] = onnx.Cast %[[NEW]] {place.at = #place.at<phase = update>, to = bf16}
// CHECK:       onnx.write @w, %[[LOW]]
// CHECK:       onnx.write @"master/w", %[[NEW]]

// What is evaluated reads the same parameters; a table that is looked up and multiplied is looked up low; its rows are widened.
// CHECK-LABEL: func.func @evaluate
// CHECK:       %[[EW:.*]] = onnx.read @w : tensor<8x8xbf16>
// CHECK:       %[[ROWS:.*]] = onnx.Gather %[[EW]], {{.*}} -> tensor<4x8xbf16>
// CHECK:       onnx.Cast %[[ROWS]] {{.*}} -> tensor<4x8xf32>

// HALF: onnx.param @w : tensor<8x8xf16>
// HALF: onnx.Contract {{.*}} : (tensor<4x8xf16>, tensor<8x8xf16>) -> tensor<4x8xf16>
onnx.param @w : tensor<8x8xf32> "parameter" {trainable = true, fill = 1.0}
onnx.param @b : tensor<8xf32> "parameter" {trainable = true, fill = 1.0}
func.func @final(%x: tensor<4x8xf32> {onnx.name = "x"}) -> tensor<f32> {
  %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<8x8xf32>
  %y = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %b = onnx.read @b {place.at = #place.at<phase = forward>} : tensor<8xf32>
  %wide = onnx.Broadcast %b {shape = array<i64: 4, 8>, dims = array<i64: 1>, place.at = #place.at<phase = forward>} : (tensor<8xf32>) -> tensor<4x8xf32>
  %s = onnx.Add %y, %wide {place.at = #place.at<phase = forward>} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %t = onnx.Tanh %s {place.at = #place.at<phase = forward>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %r = onnx.Transpose %t {perm = array<i64: 1, 0>, place.at = #place.at<phase = forward>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %z = onnx.Contract %r, %w {lhs_indices = array<i64: 1, 0>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>} : (tensor<8x4xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %l = onnx.ReduceSum %z {axes = array<i64: 0, 1>, place.at = #place.at<phase = forward>} : (tensor<4x8xf32>) -> tensor<f32>
  %dw = onnx.Contract %x, %z {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 0, 2>, result_indices = array<i64: 1, 2>, place.at = #place.at<phase = backward>} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
  %old = onnx.read @w {place.at = #place.at<phase = update>} : tensor<8x8xf32>
  %new = onnx.Sub %old, %dw {place.at = #place.at<phase = update>} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  onnx.write @w, %new {place.at = #place.at<phase = update>} : tensor<8x8xf32>
  return %l : tensor<f32>
}
func.func @evaluate(%i: tensor<4xi64> {onnx.name = "i"}) -> tensor<4x8xf32> {
  %w = onnx.read @w : tensor<8x8xf32>
  %y = onnx.Gather %w, %i {axis = 0} : (tensor<8x8xf32>, tensor<4xi64>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// Each pass turns %t in its own way before a product: both casts move up to %t, and become one, of the forward pass.
// CHECK-LABEL: func.func @accumulate
// CHECK:       %[[T:.*]] = onnx.Tanh
// CHECK-NEXT:  %[[TL:.*]] = onnx.Cast %[[T]] {place.at = #place.at<phase = forward>, to = bf16}
// CHECK-NOT:   onnx.Cast %[[T]]
// CHECK:       onnx.Reshape %[[TL]] {{.*}}place.at = #place.at<phase = forward, origin = 2
// CHECK:       onnx.Transpose %[[TL]] {{.*}}place.at = #place.at<phase = backward, origin = 3
func.func @accumulate(%x: tensor<4x8xf32>, %v: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %t = onnx.Tanh %x {place.at = #place.at<phase = forward, origin = 1>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %r = onnx.Reshape %t {shape = array<i64: 4, 8>, place.at = #place.at<phase = forward, origin = 2>} : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %z = onnx.Contract %r, %v {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward, origin = 3>} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  %g = onnx.Transpose %t {perm = array<i64: 1, 0>, place.at = #place.at<phase = backward, origin = 3>} : (tensor<4x8xf32>) -> tensor<8x4xf32>
  %dv = onnx.Contract %g, %z {lhs_indices = array<i64: 1, 0>, rhs_indices = array<i64: 0, 2>, result_indices = array<i64: 1, 2>, place.at = #place.at<phase = backward, origin = 3>} : (tensor<8x4xf32>, tensor<4x8xf32>) -> tensor<8x8xf32>
  return %dv : tensor<8x8xf32>
}
