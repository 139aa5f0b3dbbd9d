// RUN: cleave-opt %s --stack-experts --canonicalize --split-input-file | FileCheck %s

// Two experts and one that everything goes to: each of the two has its own weights and its own part of the gate.
// CHECK-LABEL: module @experts
// CHECK-DAG: onnx.param @"experts.*.w" : tensor<2x5x4xf32> "parameter" {{.*}}onnx.pieces = [{{.*}}offset = 0 : i64{{.*}}sym_name = "experts.0.w"{{.*}}offset = 80 : i64{{.*}}sym_name = "experts.1.w"
// CHECK-DAG: onnx.param @"experts.*.b" : tensor<2x5xf32>
// CHECK-DAG: onnx.param @shared.w
// CHECK-NOT: onnx.param @experts.0.w
// CHECK: %[[S:.*]] = onnx.Contract %arg0, %{{.*}} {{.*}} -> tensor<3x5xf32>
// CHECK-DAG: %[[G:.*]] = onnx.Transpose %arg1 {perm = array<i64: 1, 0>}
// CHECK-DAG: %[[W:.*]] = onnx.read @"experts.*.w"
// CHECK-DAG: %[[Y:.*]] = onnx.Contract %arg0, %[[W]] {lhs_indices = array<i64: 0, 1>, result_indices = array<i64: 3, 0, 2>, rhs_indices = array<i64: 3, 2, 1>} {{.*}} -> tensor<2x3x5xf32>
// CHECK-DAG: %[[B:.*]] = onnx.Broadcast %{{.*}} {dims = array<i64: 0, 2>, shape = array<i64: 2, 3, 5>} : (tensor<2x5xf32>)
// CHECK-DAG: %[[A:.*]] = onnx.Add %[[Y]], %[[B]]
// CHECK-DAG: %[[R:.*]] = onnx.Broadcast %{{.*}} {dims = array<i64: 0, 1>, shape = array<i64: 2, 3, 5>} : (tensor<2x3xf32>)
// CHECK: %[[P:.*]] = onnx.Mul %[[R]], %[[A]]
// CHECK: %[[Z:.*]] = onnx.ReduceSum %[[P]] {axes = array<i64: 0>}
// CHECK: onnx.Add %[[S]], %[[Z]]
module @experts {
  onnx.param @shared.w : tensor<5x4xf32> "parameter" {trainable = true, path = "", offset = 240 : i64, length = 80 : i64}
  onnx.param @experts.0.w : tensor<5x4xf32> "parameter" {trainable = true, path = "", offset = 0 : i64, length = 80 : i64}
  onnx.param @experts.1.w : tensor<5x4xf32> "parameter" {trainable = true, path = "", offset = 80 : i64, length = 80 : i64}
  onnx.param @experts.0.b : tensor<5xf32> "parameter" {trainable = true, path = "", offset = 160 : i64, length = 20 : i64}
  onnx.param @experts.1.b : tensor<5xf32> "parameter" {trainable = true, path = "", offset = 180 : i64, length = 20 : i64}
  func.func @model(%x: tensor<3x4xf32>, %gate: tensor<3x2xf32>) -> tensor<3x5xf32> {
    %ws = onnx.read @shared.w : tensor<5x4xf32>
    %w0 = onnx.read @experts.0.w : tensor<5x4xf32>
    %w1 = onnx.read @experts.1.w : tensor<5x4xf32>
    %b0 = onnx.read @experts.0.b : tensor<5xf32>
    %b1 = onnx.read @experts.1.b : tensor<5xf32>
    %ys = onnx.Contract %x, %ws {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 2, 1>, result_indices = array<i64: 0, 2>} : (tensor<3x4xf32>, tensor<5x4xf32>) -> tensor<3x5xf32>
    %y0 = onnx.Contract %x, %w0 {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 2, 1>, result_indices = array<i64: 0, 2>} : (tensor<3x4xf32>, tensor<5x4xf32>) -> tensor<3x5xf32>
    %c0 = onnx.Broadcast %b0 {dims = array<i64: 1>, shape = array<i64: 3, 5>} : (tensor<5xf32>) -> tensor<3x5xf32>
    %a0 = onnx.Add %y0, %c0 : (tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
    %g0 = onnx.Slice %gate {starts = array<i64: 0, 0>, sizes = array<i64: 3, 1>, steps = array<i64: 1, 1>} : (tensor<3x2xf32>) -> tensor<3x1xf32>
    %h0 = onnx.Reshape %g0 {shape = array<i64: 3>} : (tensor<3x1xf32>) -> tensor<3xf32>
    %f0 = onnx.Broadcast %h0 {dims = array<i64: 0>, shape = array<i64: 3, 5>} : (tensor<3xf32>) -> tensor<3x5xf32>
    %p0 = onnx.Mul %f0, %a0 : (tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
    %s0 = onnx.Add %ys, %p0 : (tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
    %y1 = onnx.Contract %x, %w1 {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 2, 1>, result_indices = array<i64: 0, 2>} : (tensor<3x4xf32>, tensor<5x4xf32>) -> tensor<3x5xf32>
    %c1 = onnx.Broadcast %b1 {dims = array<i64: 1>, shape = array<i64: 3, 5>} : (tensor<5xf32>) -> tensor<3x5xf32>
    %a1 = onnx.Add %y1, %c1 : (tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
    %g1 = onnx.Slice %gate {starts = array<i64: 0, 1>, sizes = array<i64: 3, 1>, steps = array<i64: 1, 1>} : (tensor<3x2xf32>) -> tensor<3x1xf32>
    %h1 = onnx.Reshape %g1 {shape = array<i64: 3>} : (tensor<3x1xf32>) -> tensor<3xf32>
    %f1 = onnx.Broadcast %h1 {dims = array<i64: 0>, shape = array<i64: 3, 5>} : (tensor<3xf32>) -> tensor<3x5xf32>
    %p1 = onnx.Mul %f1, %a1 : (tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
    %s1 = onnx.Add %s0, %p1 : (tensor<3x5xf32>, tensor<3x5xf32>) -> tensor<3x5xf32>
    return %s1 : tensor<3x5xf32>
  }
}

// -----

// The sum of two projections is no choice between them; nor is one a choice whose first weight something else reads.
// CHECK-LABEL: module @projections
// CHECK-NOT: onnx.pieces
module @projections {
  onnx.param @a : tensor<4x4xf32> "parameter" {trainable = true, fill = 1.0 : f64}
  onnx.param @b : tensor<4x4xf32> "parameter" {trainable = true, fill = 1.0 : f64}
  onnx.param @c : tensor<4x4xf32> "parameter" {trainable = true, fill = 1.0 : f64}
  onnx.param @d : tensor<4x4xf32> "parameter" {trainable = true, fill = 1.0 : f64}
  func.func @model(%x: tensor<4x4xf32>, %gate: tensor<4x8xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>) {
    %a = onnx.read @a : tensor<4x4xf32>
    %b = onnx.read @b : tensor<4x4xf32>
    %c = onnx.read @c : tensor<4x4xf32>
    %d = onnx.read @d : tensor<4x4xf32>
    %ya = onnx.Contract %x, %a {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %yb = onnx.Contract %x, %b {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %s = onnx.Add %ya, %yb : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %yc = onnx.Contract %x, %c {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %yd = onnx.Contract %x, %d {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %gc = onnx.Slice %gate {starts = array<i64: 0, 0>, sizes = array<i64: 4, 4>, steps = array<i64: 1, 1>} : (tensor<4x8xf32>) -> tensor<4x4xf32>
    %gd = onnx.Slice %gate {starts = array<i64: 0, 4>, sizes = array<i64: 4, 4>, steps = array<i64: 1, 1>} : (tensor<4x8xf32>) -> tensor<4x4xf32>
    %pc = onnx.Mul %gc, %yc : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %pd = onnx.Mul %gd, %yd : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %t = onnx.Add %pc, %pd : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %u = onnx.Mul %t, %s : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    return %u, %yc : tensor<4x4xf32>, tensor<4x4xf32>
  }
}

// -----

// Stacked by the model itself, with the gate after.
// CHECK-LABEL: module @concatenated
// CHECK: onnx.param @"*" : tensor<2x4x4xf32>
// CHECK: %[[Y:.*]] = onnx.Contract {{.*}} -> tensor<2x3x4xf32>
// CHECK: onnx.Transpose %[[Y]] {perm = array<i64: 1, 0, 2>} : (tensor<2x3x4xf32>) -> tensor<3x2x4xf32>
// CHECK-NOT: onnx.Concat
module @concatenated {
  onnx.param @a : tensor<4x4xf32> "parameter" {trainable = true, fill = 1.0 : f64}
  onnx.param @b : tensor<4x4xf32> "parameter" {trainable = true, fill = 2.0 : f64}
  func.func @model(%x: tensor<3x4xf32>) -> tensor<3x2x4xf32> {
    %a = onnx.read @a : tensor<4x4xf32>
    %b = onnx.read @b : tensor<4x4xf32>
    %ya = onnx.Contract %x, %a {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<3x4xf32>, tensor<4x4xf32>) -> tensor<3x4xf32>
    %yb = onnx.Contract %x, %b {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<3x4xf32>, tensor<4x4xf32>) -> tensor<3x4xf32>
    %ra = onnx.Reshape %ya {shape = array<i64: 3, 1, 4>} : (tensor<3x4xf32>) -> tensor<3x1x4xf32>
    %rb = onnx.Reshape %yb {shape = array<i64: 3, 1, 4>} : (tensor<3x4xf32>) -> tensor<3x1x4xf32>
    %s = onnx.Concat %ra, %rb {axis = 1 : i64} : (tensor<3x1x4xf32>, tensor<3x1x4xf32>) -> tensor<3x2x4xf32>
    return %s : tensor<3x2x4xf32>
  }
}
