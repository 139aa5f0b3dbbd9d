// RUN: cleave-opt --join-parts --split-input-file %s | FileCheck %s

// The gradient of what three slices read, as queries, keys and values are: one Concat, whatever their order.
// CHECK-LABEL: func.func @whole
func.func @whole(%q: tensor<4x2xf32>, %k: tensor<4x2xf32>, %v: tensor<4x4xf32>) -> tensor<4x8xf32> {
  // CHECK: %[[J:.*]] = onnx.Concat %arg0, %arg1, %arg2 {axis = 1 : i64, cleave.phase = "backward"}
  // CHECK-NEXT: return %[[J]]
  %a = onnx.Pad %v {low = array<i64: 0, 4>, high = array<i64: 0, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<4x4xf32>) -> tensor<4x8xf32>
  %b = onnx.Pad %q {low = array<i64: 0, 0>, high = array<i64: 0, 6>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<4x2xf32>) -> tensor<4x8xf32>
  %c = onnx.Pad %k {low = array<i64: 0, 2>, high = array<i64: 0, 4>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<4x2xf32>) -> tensor<4x8xf32>
  %s = onnx.Sum %a, %b, %c {cleave.phase = "backward"} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %s : tensor<4x8xf32>
}

// -----

// Two neighbours leave zeros on one side; another term, and a part with a gap before it, are added as before.
// CHECK-LABEL: func.func @some
func.func @some(%p: tensor<2x4xf32>, %q: tensor<3x4xf32>, %far: tensor<1x4xf32>, %x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  // CHECK: %[[FAR:.*]] = onnx.Pad %arg2
  // CHECK: %[[J:.*]] = onnx.Concat %arg0, %arg1 {axis = 0 : i64}
  // CHECK: %[[P:.*]] = onnx.Pad %[[J]] {high = array<i64: 3, 0>, interior = array<i64: 0, 0>, low = array<i64: 0, 0>, value = 0.000000e+00 : f64}
  // CHECK: onnx.Sum %arg3, %[[P]], %[[FAR]]
  %a = onnx.Pad %p {low = array<i64: 0, 0>, high = array<i64: 6, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<2x4xf32>) -> tensor<8x4xf32>
  %b = onnx.Pad %q {low = array<i64: 2, 0>, high = array<i64: 3, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<3x4xf32>) -> tensor<8x4xf32>
  %c = onnx.Pad %far {low = array<i64: 7, 0>, high = array<i64: 0, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<1x4xf32>) -> tensor<8x4xf32>
  %s = onnx.Sum %a, %b, %x, %c : (tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<8x4xf32>
  return %s : tensor<8x4xf32>
}

// -----

// Parts that overlap, that are padded in two dimensions or between elements, or with something else than zeros.
// CHECK-LABEL: func.func @not
func.func @not(%p: tensor<2x4xf32>, %q: tensor<2x2xf32>) -> tensor<4x4xf32> {
  // CHECK-NOT: onnx.Concat
  // CHECK-COUNT-5: onnx.Pad
  // CHECK: onnx.Sum
  %a = onnx.Pad %p {low = array<i64: 0, 0>, high = array<i64: 2, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<2x4xf32>) -> tensor<4x4xf32>
  %b = onnx.Pad %p {low = array<i64: 1, 0>, high = array<i64: 1, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<2x4xf32>) -> tensor<4x4xf32>
  %c = onnx.Pad %q {low = array<i64: 2, 2>, high = array<i64: 0, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<2x2xf32>) -> tensor<4x4xf32>
  %d = onnx.Pad %p {low = array<i64: 1, 0>, high = array<i64: 0, 0>, interior = array<i64: 1, 0>, value = 0.0 : f64} : (tensor<2x4xf32>) -> tensor<4x4xf32>
  %e = onnx.Pad %p {low = array<i64: 2, 0>, high = array<i64: 0, 0>, interior = array<i64: 0, 0>, value = 1.0 : f64} : (tensor<2x4xf32>) -> tensor<4x4xf32>
  %s = onnx.Sum %a, %b, %c, %d, %e : (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %s : tensor<4x4xf32>
}

// -----

// A device's own parts of parts are its own part of their concatenation; not where another term is none.
// CHECK-LABEL: func.func @own
func.func @own(%p: tensor<2x4xf32>, %q: tensor<6x4xf32>, %x: tensor<8x4xf32>) -> (tensor<2x4xf32>, tensor<2x4xf32>) {
  // CHECK: %[[J:.*]] = onnx.Concat %arg0, %arg1 {axis = 0 : i64}
  // CHECK: %[[OWN:.*]] = dist.own_part %[[J]] {axes = ["dp"], dim = 0 : i64}
  // CHECK: dist.own_part
  // CHECK: %[[S:.*]] = onnx.Sum
  // CHECK: return %[[OWN]], %[[S]]
  %a = onnx.Pad %p {low = array<i64: 0, 0>, high = array<i64: 6, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<2x4xf32>) -> tensor<8x4xf32>
  %b = onnx.Pad %q {low = array<i64: 2, 0>, high = array<i64: 0, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<6x4xf32>) -> tensor<8x4xf32>
  %oa = dist.own_part %a {axes = ["dp"], dim = 0 : i64} : (tensor<8x4xf32>) -> tensor<2x4xf32>
  %ob = dist.own_part %b {axes = ["dp"], dim = 0 : i64} : (tensor<8x4xf32>) -> tensor<2x4xf32>
  %s = onnx.Sum %oa, %ob : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  %c = onnx.Pad %p {low = array<i64: 0, 0>, high = array<i64: 6, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<2x4xf32>) -> tensor<8x4xf32>
  %oc = dist.own_part %c {axes = ["dp"], dim = 0 : i64} : (tensor<8x4xf32>) -> tensor<2x4xf32>
  %ox = dist.own_part %x {axes = ["dp"], dim = 0 : i64} : (tensor<8x4xf32>) -> tensor<2x4xf32>
  %t = onnx.Sum %oc, %ox : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
  return %s, %t : tensor<2x4xf32>, tensor<2x4xf32>
}
