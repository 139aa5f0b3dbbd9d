// RUN: cleave-opt --join-parts --split-input-file %s | FileCheck %s

// The gradient of what three slices read, as queries, keys and values are: one Concat, whatever their order.
// CHECK-LABEL: func.func @whole
func.func @whole(%q: tensor<4x2xf32>, %k: tensor<4x2xf32>, %v: tensor<4x4xf32>) -> tensor<4x8xf32> {
  // CHECK: %[[J:.*]] = onnx.Concat %arg0, %arg1, %arg2 {axis = 1 : i64, place.at = #place.at<phase = backward>}
  // CHECK-NEXT: return %[[J]]
  %a = onnx.Pad %v {low = array<i64: 0, 4>, high = array<i64: 0, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<4x4xf32>) -> tensor<4x8xf32>
  %b = onnx.Pad %q {low = array<i64: 0, 0>, high = array<i64: 0, 6>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<4x2xf32>) -> tensor<4x8xf32>
  %c = onnx.Pad %k {low = array<i64: 0, 2>, high = array<i64: 0, 4>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<4x2xf32>) -> tensor<4x8xf32>
  %s = onnx.Sum %a, %b, %c {place.at = #place.at<phase = backward>} : (tensor<4x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %s : tensor<4x8xf32>
}

// -----

// Two neighbours leave zeros on one side; another term, and a part after a gap that is longer, are added as before.
// CHECK-LABEL: func.func @some
func.func @some(%p: tensor<2x4xf32>, %q: tensor<3x4xf32>, %far: tensor<1x4xf32>, %x: tensor<16x4xf32>) -> tensor<16x4xf32> {
  // CHECK: %[[FAR:.*]] = onnx.Pad %arg2
  // CHECK: %[[J:.*]] = onnx.Concat %arg0, %arg1 {axis = 0 : i64}
  // CHECK: %[[P:.*]] = onnx.Pad %[[J]] {high = array<i64: 11, 0>, interior = array<i64: 0, 0>, low = array<i64: 0, 0>, value = 0.000000e+00 : f64}
  // CHECK: onnx.Sum %arg3, %[[P]], %[[FAR]]
  %a = onnx.Pad %p {low = array<i64: 0, 0>, high = array<i64: 14, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<2x4xf32>) -> tensor<16x4xf32>
  %b = onnx.Pad %q {low = array<i64: 2, 0>, high = array<i64: 11, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<3x4xf32>) -> tensor<16x4xf32>
  %c = onnx.Pad %far {low = array<i64: 15, 0>, high = array<i64: 0, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<1x4xf32>) -> tensor<16x4xf32>
  %s = onnx.Sum %a, %b, %x, %c : (tensor<16x4xf32>, tensor<16x4xf32>, tensor<16x4xf32>, tensor<16x4xf32>) -> tensor<16x4xf32>
  return %s : tensor<16x4xf32>
}

// -----

// Keys have no gradient: zeros lie in their place.
// CHECK-LABEL: func.func @gap
func.func @gap(%q: tensor<4x2xf32>, %v: tensor<4x4xf32>) -> tensor<4x8xf32> {
  // CHECK: %[[ONE:.*]] = onnx.Constant dense<0.000000e+00> : tensor<f32>
  // CHECK: %[[ZEROS:.*]] = onnx.Broadcast %[[ONE]] {dims = array<i64>, shape = array<i64: 4, 2>}
  // CHECK: %[[J:.*]] = onnx.Concat %arg0, %[[ZEROS]], %arg1 {axis = 1 : i64}
  // CHECK-NEXT: return %[[J]]
  %a = onnx.Pad %v {low = array<i64: 0, 4>, high = array<i64: 0, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<4x4xf32>) -> tensor<4x8xf32>
  %b = onnx.Pad %q {low = array<i64: 0, 0>, high = array<i64: 0, 6>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<4x2xf32>) -> tensor<4x8xf32>
  %s = onnx.Sum %a, %b : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %s : tensor<4x8xf32>
}

// -----

// In 16 bits parts are cast before they are added: who reads 16 bits reads the concatenation itself.
// CHECK-LABEL: func.func @cast
func.func @cast(%q: tensor<4x2xbf16>, %k: tensor<4x6xbf16>) -> (tensor<4x8xbf16>, tensor<8xf32>) {
  // CHECK: %[[J:.*]] = onnx.Concat %arg0, %arg1 {axis = 1 : i64} : (tensor<4x2xbf16>, tensor<4x6xbf16>) -> tensor<4x8xbf16>
  // CHECK: %[[WIDE:.*]] = onnx.Cast %[[J]] {to = f32}
  // CHECK: %[[R:.*]] = onnx.ReduceSum %[[WIDE]]
  // CHECK: return %[[J]], %[[R]]
  %a = onnx.Pad %q {low = array<i64: 0, 0>, high = array<i64: 0, 6>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<4x2xbf16>) -> tensor<4x8xbf16>
  %b = onnx.Pad %k {low = array<i64: 0, 2>, high = array<i64: 0, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<4x6xbf16>) -> tensor<4x8xbf16>
  %wa = onnx.Cast %a {to = f32} : (tensor<4x8xbf16>) -> tensor<4x8xf32>
  %wb = onnx.Cast %b {to = f32} : (tensor<4x8xbf16>) -> tensor<4x8xf32>
  %s = onnx.Sum %wa, %wb : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %n = onnx.Cast %s {to = bf16} : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  %r = onnx.ReduceSum %s {axes = array<i64: 0>} : (tensor<4x8xf32>) -> tensor<8xf32>
  return %n, %r : tensor<4x8xbf16>, tensor<8xf32>
}

// -----

// Parts of two types are cast, and then concatenated.
// CHECK-LABEL: func.func @types
func.func @types(%q: tensor<4x2xbf16>, %k: tensor<4x6xf32>) -> tensor<4x8xf32> {
  // CHECK: %[[Q:.*]] = onnx.Cast %arg0 {to = f32}
  // CHECK: %[[J:.*]] = onnx.Concat %[[Q]], %arg1 {axis = 1 : i64}
  // CHECK-NEXT: return %[[J]]
  %a = onnx.Pad %q {low = array<i64: 0, 0>, high = array<i64: 0, 6>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<4x2xbf16>) -> tensor<4x8xbf16>
  %b = onnx.Pad %k {low = array<i64: 0, 2>, high = array<i64: 0, 0>, interior = array<i64: 0, 0>, value = 0.0 : f64} : (tensor<4x6xf32>) -> tensor<4x8xf32>
  %wa = onnx.Cast %a {to = f32} : (tensor<4x8xbf16>) -> tensor<4x8xf32>
  %s = onnx.Sum %wa, %b : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  return %s : tensor<4x8xf32>
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
