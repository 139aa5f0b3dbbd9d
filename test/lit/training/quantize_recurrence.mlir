// RUN: cleave-opt %s --build-backward=number-products=true --quantize-products="recipe={loss: {kind: mse}, precision: fp8, fp8: {keep: [], history: 4}}" | FileCheck %s
// RUN: cleave-opt %s --build-backward=number-products=true --quantize-products="recipe={loss: {kind: mse}, precision: fp8, fp8: {keep: [], history: 4}}" --accumulate-gradients --update-scales="recipe={loss: {kind: mse}, precision: fp8, fp8: {history: 4}}" | FileCheck %s --check-prefix=UPDATE
// RUN: cleave-opt %s --build-backward=number-products=true --quantize-products="recipe={loss: {kind: mse}, precision: fp8, fp8: {keep: [], scaling: current}}" | FileCheck %s --check-prefix=PAIRS
// RUN: cleave-opt %s --build-backward=number-products=true --quantize-products="recipe={loss: {kind: mse}, precision: fp8}" | FileCheck %s --check-prefix=LAST

// Both steps of a recurrence multiply by one weight, at one location: they share its scales.
// CHECK:       onnx.fp8 = "fp8: 5 products of a step are in 8 bits"
// CHECK:       onnx.param @"fp8.scale.input/w"
// CHECK-NEXT:  onnx.param @"fp8.history.input/w"
// CHECK-NEXT:  onnx.param @"fp8.scale.weight/w"
// CHECK-NEXT:  onnx.param @"fp8.history.weight/w"
// CHECK-NEXT:  onnx.param @"fp8.scale.gradient/w"
// CHECK-NEXT:  onnx.param @"fp8.history.gradient/w"
// CHECK-NEXT:  func.func @model
// The weight is rounded once in each pass, each step's input and gradient by itself.
// CHECK:       %[[SX:.*]] = onnx.read @"fp8.scale.input/w"
// CHECK:       %[[A0:.*]] = onnx.ReduceMax
// CHECK:       %[[Q0:.*]] = onnx.Cast %{{.*}} -> tensor<16x16xf8E4M3FN>
// CHECK:       %[[AW:.*]] = onnx.ReduceMax
// CHECK:       %[[QW:.*]] = onnx.Cast %{{.*}} -> tensor<16x16xf8E4M3FN>
// CHECK:       onnx.Contract %[[Q0]], %[[QW]] {{.*}}place.product = 1 : i64
// CHECK:       onnx.read @"fp8.scale.input/w"
// CHECK:       %[[A1:.*]] = onnx.ReduceMax
// CHECK:       %[[Q1:.*]] = onnx.Cast %{{.*}} -> tensor<16x16xf8E4M3FN>
// CHECK:       onnx.Contract %[[Q1]], %[[QW]] {{.*}}place.product = 0 : i64
// CHECK:       %[[D1:.*]] = onnx.ReduceMax
// CHECK:       %[[QD1:.*]] = onnx.Cast %{{.*}} -> tensor<16x16xf8E5M2>
// CHECK:       %[[QW1:.*]] = onnx.Cast %{{.*}} -> tensor<16x16xf8E4M3FN>
// CHECK:       onnx.Contract %[[QD1]], %[[QW1]] {{.*}}place.product = 0 : i64{{.*}} -> tensor<16x16xbf16>
// CHECK:       onnx.Contract %[[Q1]], %[[QD1]] {{.*}}place.product = 0 : i64{{.*}} -> tensor<16x16xf32>
// CHECK:       %[[D0:.*]] = onnx.ReduceMax
// CHECK:       %[[QD0:.*]] = onnx.Cast %{{.*}} -> tensor<16x16xf8E5M2>
// CHECK:       onnx.Contract %[[Q0]], %[[QD0]] {{.*}}place.product = 1 : i64{{.*}} -> tensor<16x16xf32>
// CHECK:       return {{.*}}, %[[A0]], %[[AW]], %[[A1]], %[[D1]], %[[D0]] :

// The largest of both steps' amaxes enters one history.
// UPDATE-LABEL: func.func @final
// UPDATE:      %[[A0:.*]] = onnx.ReduceMax
// UPDATE:      onnx.ReduceMax
// UPDATE:      %[[A1:.*]] = onnx.ReduceMax
// UPDATE:      %[[D1:.*]] = onnx.ReduceMax
// UPDATE:      %[[D0:.*]] = onnx.ReduceMax
// UPDATE:      %[[A:.*]] = onnx.Max %[[A0]], %[[A1]] {place.at = #place.at<phase = update>}
// UPDATE:      onnx.Less %[[A]]
// UPDATE:      onnx.write @"fp8.history.input/w"
// UPDATE:      onnx.write @"fp8.history.weight/w"
// UPDATE-NOT:  fp8.history.input/w
// UPDATE:      onnx.Max %[[D1]], %[[D0]] {place.at = #place.at<phase = update>}
// UPDATE:      onnx.write @"fp8.history.gradient/w"
// UPDATE-NOT:  fp8.history

// With current scaling each tensor has a scale of its own; the products belong together alike.
// PAIRS:       onnx.Contract {{.*}}phase = forward>, place.product = 1 : i64
// PAIRS:       onnx.Contract {{.*}}phase = forward>, place.product = 0 : i64
// PAIRS:       onnx.Contract {{.*}}phase = backward>, place.product = 0 : i64
// PAIRS:       onnx.Contract {{.*}}phase = backward>, place.product = 0 : i64
// PAIRS:       onnx.Contract {{.*}}phase = backward>, place.product = 1 : i64

// Behind the last step there is no product: the weight stays in 16 bits, in the first step, too.
// LAST:        onnx.fp8 = "fp8: 0 products of a step are in 8 bits; in 16 bits are those of w (the last product)"
// LAST-NOT:    f8E4M3FN
onnx.param @w : tensor<16x16xf32> "parameter" {trainable = true, fill = 1.0}
func.func @model(%x: tensor<16x16xf32> {onnx.name = "x"}) -> (tensor<f32> {onnx.name = "loss_sum"}) {
  %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<16x16xf32>
  %y = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>} : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32> loc("rnn")
  %h = onnx.Tanh %y {place.at = #place.at<phase = forward>} : (tensor<16x16xf32>) -> tensor<16x16xf32>
  %z = onnx.Contract %h, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>, place.at = #place.at<phase = forward>} : (tensor<16x16xf32>, tensor<16x16xf32>) -> tensor<16x16xf32> loc("rnn")
  %l = onnx.ReduceSum %z {axes = array<i64: 0, 1>, place.at = #place.at<phase = forward>} : (tensor<16x16xf32>) -> tensor<f32>
  return %l : tensor<f32>
}
