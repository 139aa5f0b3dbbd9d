// RUN: cleave-opt %s --quantize-products="recipe={loss: {kind: mse}, precision: fp8, fp8: {keep: [], history: 4}}" | FileCheck %s
// RUN: cleave-opt %s --quantize-products="recipe={loss: {kind: mse}, precision: fp8}" | FileCheck %s --check-prefix=LAST
// RUN: cleave-opt %s --quantize-products="recipe={loss: {kind: mse}, precision: fp8, fp8: {keep: [], scaling: current, margin: 1}}" | FileCheck %s --check-prefix=CURRENT
// RUN: cleave-opt %s --quantize-products="recipe={loss: {kind: mse}, precision: fp8, fp8: {keep: [], history: 4}}" --accumulate-gradients=microbatches=2 --update-scales="recipe={loss: {kind: mse}, precision: fp8, fp8: {history: 4, margin: 1}}" | FileCheck %s --check-prefix=UPDATE
// RUN: not cleave-opt %s --quantize-products="recipe={loss: {kind: mse}, precision: bf16, fp8: {margin: 1}}" 2>&1 | FileCheck %s --check-prefix=WRONG
// WRONG: 'fp8' is for precision fp8, this recipe's is bf16

// CHECK:       onnx.fp8 = "fp8: 3 products of a step are in 8 bits; in 16 bits are those of odd (size 24)"
// CHECK:       onnx.param @"fp8.scale.input/w" : tensor<f32> "optimizer_state" {fill = 1.000000e+00 : f64, onnx.beside = @w
// CHECK:       onnx.param @"fp8.history.input/w" : tensor<4xf32> "optimizer_state" {fill = 0.000000e+00 : f64, onnx.beside = @w
// CHECK:       onnx.param @"fp8.scale.weight/w"
// CHECK:       onnx.param @"fp8.scale.gradient/w"
// CHECK-LABEL: func.func @model
// CHECK:       %[[SX:.*]] = onnx.read @"fp8.scale.input/w" {onnx.fp8_scaling, place.at = #place.at<phase = forward>} : tensor<f32>
// Scaling is no matter for the planner; a cast to 8 bits is.
// CHECK:       %[[ABS:.*]] = onnx.Abs %arg0 {onnx.fp8_scaling, place.at = #place.at<phase = forward>}
// CHECK:       %[[AX:.*]] = onnx.ReduceMax %[[ABS]] {axes = array<i64: 0, 1>, onnx.fp8_scaling
// CHECK:       %[[BX:.*]] = onnx.Broadcast %[[SX]]
// CHECK:       %[[PX:.*]] = onnx.Mul %arg0, %[[BX]]
// CHECK:       %[[QX:.*]] = onnx.Cast %[[PX]] {{.*}}place.at = #place.at<phase = forward>{{.*}} -> tensor<8x32xf8E4M3FN>
// A weight is rounded to bf16 first.
// CHECK:       %[[LOW:.*]] = onnx.Cast %{{.*}} -> tensor<32x16xbf16>
// CHECK:       onnx.Cast %[[LOW]] {{.*}} -> tensor<32x16xf32>
// CHECK:       %[[QW:.*]] = onnx.Cast %{{.*}} -> tensor<32x16xf8E4M3FN>
// CHECK:       %[[R:.*]] = onnx.Contract %[[QX]], %[[QW]] {{.*}} -> tensor<8x16xbf16>
// CHECK:       onnx.Cast %[[R]] {{.*}} -> tensor<8x16xf32>
// CHECK:       onnx.Reciprocal %[[SX]]
// Nothing changes for the odd weight.
// CHECK:       onnx.Contract {{.*}} : (tensor<8x16xf32>, tensor<16x24xf32>) -> tensor<8x24xf32>
// The gradient is rounded once for both products, the weight again; the weight's gradient stays f32.
// CHECK:       %[[QD:.*]] = onnx.Cast %{{.*}} -> tensor<8x16xf8E5M2>
// CHECK:       %[[AGAIN:.*]] = onnx.Cast %{{.*}} -> tensor<32x16xf8E4M3FN>
// CHECK:       onnx.Contract %[[QD]], %[[AGAIN]] {{.*}} -> tensor<8x32xbf16>
// CHECK:       onnx.Contract %[[QX]], %[[QD]] {{.*}} -> tensor<32x16xf32>
// CHECK:       return {{.*}}%[[AX]]
// CHECK-LABEL: func.func @evaluate
// CHECK-NOT:   onnx.Abs
// CHECK:       onnx.Contract {{.*}} : (tensor<8x32xf8E4M3FN>, tensor<32x16xf8E4M3FN>) -> tensor<8x16xbf16>

// Behind "w" there is a product, behind "odd" none.
// LAST:        onnx.fp8 = "fp8: 3 products of a step are in 8 bits; in 16 bits are those of odd (the last product)"

// CURRENT-NOT: fp8.scale
// CURRENT-LABEL: func.func @model
// CURRENT:     %[[ABS:.*]] = onnx.Abs %arg0 {place.at = #place.at<phase = forward>}
// CURRENT:     %[[AX:.*]] = onnx.ReduceMax %[[ABS]]
// CURRENT:     onnx.Constant {{.*}}dense<2.240000e+02>
// CURRENT:     %[[S:.*]] = onnx.Div
// CURRENT:     onnx.Where %{{.*}}, %[[S]], %

// UPDATE-LABEL: func.func @accumulate
// UPDATE:      %[[BEFORE:.*]] = onnx.read @"accumulator.fp8.amax.input/w"
// UPDATE:      %[[MAX:.*]] = onnx.Max %[[BEFORE]], %
// UPDATE:      onnx.write @"accumulator.fp8.amax.input/w", %[[MAX]]
// UPDATE-LABEL: func.func @final
// UPDATE:      %[[AMAX:.*]] = onnx.Max
// UPDATE:      onnx.write @"accumulator.fp8.amax.input/w", %{{.*}}
// UPDATE:      %[[AT:.*]] = onnx.read @fp8.position {place.at = #place.at<phase = update>}
// UPDATE:      onnx.write @fp8.position, %
// UPDATE:      %[[OLDEST:.*]] = onnx.Equal
// UPDATE:      %[[H:.*]] = onnx.read @"fp8.history.input/w" {place.at = #place.at<phase = update>}
// UPDATE:      %[[NEW:.*]] = onnx.Where %[[OLDEST]], %{{.*}}, %[[H]]
// UPDATE:      onnx.write @"fp8.history.input/w", %[[NEW]]
// UPDATE:      %[[OLD:.*]] = onnx.read @"fp8.scale.input/w"
// UPDATE:      onnx.ReduceMax %[[NEW]]
// UPDATE:      dense<2.240000e+02>
// UPDATE:      %[[SCALE:.*]] = onnx.Where %{{.*}}, %{{.*}}, %[[OLD]]
// UPDATE:      onnx.write @"fp8.scale.input/w", %[[SCALE]]
// e5m2's largest number, halved by the margin.
// UPDATE:      dense<2.867200e+04>
onnx.param @w : tensor<32x16xf32> "parameter" {trainable = true, fill = 1.0}
onnx.param @odd : tensor<16x24xf32> "parameter" {trainable = true, fill = 1.0}
func.func @model(%x: tensor<8x32xf32> {onnx.name = "x"}) -> (tensor<f32> {onnx.name = "loss_sum"}, tensor<8x32xf32> {onnx.name = "dx"}, tensor<32x16xf32> {onnx.gradient_of = @w}) {
  %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<32x16xf32>
  %o = onnx.read @odd {place.at = #place.at<phase = forward>} : tensor<16x24xf32>
  %y = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.product = 1 : i64, place.at = #place.at<phase = forward>} : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32> loc("fc")
  %z = onnx.Contract %y, %o {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.product = 0 : i64, place.at = #place.at<phase = forward>} : (tensor<8x16xf32>, tensor<16x24xf32>) -> tensor<8x24xf32> loc("odd")
  %l = onnx.ReduceSum %z {axes = array<i64: 0, 1>, place.at = #place.at<phase = forward>} : (tensor<8x24xf32>) -> tensor<f32>
  %dz = onnx.Broadcast %l {shape = array<i64: 8, 24>, dims = array<i64>, place.at = #place.at<phase = backward>} : (tensor<f32>) -> tensor<8x24xf32>
  %dy = onnx.Contract %dz, %o {lhs_indices = array<i64: 0, 2>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 1>, place.product = 0 : i64, place.at = #place.at<phase = backward>} : (tensor<8x24xf32>, tensor<16x24xf32>) -> tensor<8x16xf32> loc("odd")
  %dx = onnx.Contract %dy, %w {lhs_indices = array<i64: 0, 2>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 1>, place.product = 1 : i64, place.at = #place.at<phase = backward>} : (tensor<8x16xf32>, tensor<32x16xf32>) -> tensor<8x32xf32> loc("fc")
  %dw = onnx.Contract %x, %dy {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 0, 2>, result_indices = array<i64: 1, 2>, place.product = 1 : i64, place.at = #place.at<phase = backward>} : (tensor<8x32xf32>, tensor<8x16xf32>) -> tensor<32x16xf32> loc("fc")
  return %l, %dx, %dw : tensor<f32>, tensor<8x32xf32>, tensor<32x16xf32>
}
func.func @evaluate(%x: tensor<8x32xf32> {onnx.name = "x"}) -> (tensor<8x24xf32> {onnx.name = "loss"}) {
  %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<32x16xf32>
  %o = onnx.read @odd {place.at = #place.at<phase = forward>} : tensor<16x24xf32>
  %y = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>} : (tensor<8x32xf32>, tensor<32x16xf32>) -> tensor<8x16xf32> loc("fc")
  %z = onnx.Contract %y, %o {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>} : (tensor<8x16xf32>, tensor<16x24xf32>) -> tensor<8x24xf32> loc("odd")
  return %z : tensor<8x24xf32>
}
