// RUN: cleave-opt %s --choose-experts --canonicalize --raise-grouped-products --split-input-file | FileCheck %s

// Three experts that all compute each token, of which each choice of a token takes one: it alone is computed. A choice
// that is none of them (%i may be 3, or -1) takes 0.
// CHECK-LABEL: func.func @model
// CHECK-DAG: %[[MOST:.*]] = onnx.Constant dense<2> : tensor<5x2xi64>
// CHECK: %[[MIN:.*]] = onnx.Min %arg2, %[[MOST]]
// CHECK: %[[G:.*]] = onnx.Max %[[MIN]], %{{.*}} : (tensor<5x2xi64>, tensor<5x2xi64>)
// CHECK: %[[HIT:.*]] = onnx.Equal %arg2, %[[G]]
// CHECK: %[[Y:.*]] = onnx.GroupedContract %{{.*}}, %arg1, %[[G]] {group_count = 3 : i64
// CHECK-SAME: -> tensor<5x2x6xf32>
// CHECK: %[[W:.*]] = onnx.Where %{{.*}}, %[[Y]], %{{.*}} : (tensor<5x2x6xi1>
// CHECK: %[[S:.*]] = onnx.ReduceSum %[[W]] {axes = array<i64: 1>}
// CHECK: return %[[S]]
func.func @model(%x: tensor<5x4xf32>, %w: tensor<3x6x4xf32>, %i: tensor<5x2xi64>) -> tensor<5x6xf32> {
  %numbers = onnx.Constant dense<[0, 1, 2]> : tensor<3xi64>
  %n = onnx.Broadcast %numbers {dims = array<i64: 0>, shape = array<i64: 3, 5, 2>} : (tensor<3xi64>) -> tensor<3x5x2xi64>
  %c = onnx.Broadcast %i {dims = array<i64: 1, 2>, shape = array<i64: 3, 5, 2>} : (tensor<5x2xi64>) -> tensor<3x5x2xi64>
  %hit = onnx.Equal %c, %n : (tensor<3x5x2xi64>, tensor<3x5x2xi64>) -> tensor<3x5x2xi1>
  %m = onnx.Broadcast %hit {dims = array<i64: 0, 1, 2>, shape = array<i64: 3, 5, 2, 6>} : (tensor<3x5x2xi1>) -> tensor<3x5x2x6xi1>
  %y = onnx.Contract %x, %w {lhs_indices = array<i64: 1, 2>, rhs_indices = array<i64: 0, 3, 2>, result_indices = array<i64: 0, 1, 3>} : (tensor<5x4xf32>, tensor<3x6x4xf32>) -> tensor<3x5x6xf32>
  %b = onnx.Broadcast %y {dims = array<i64: 0, 1, 3>, shape = array<i64: 3, 5, 2, 6>} : (tensor<3x5x6xf32>) -> tensor<3x5x2x6xf32>
  %z = onnx.Constant dense<0.0> : tensor<3x5x2x6xf32>
  %k = onnx.Where %m, %b, %z : (tensor<3x5x2x6xi1>, tensor<3x5x2x6xf32>, tensor<3x5x2x6xf32>) -> tensor<3x5x2x6xf32>
  %s = onnx.ReduceSum %k {axes = array<i64: 0, 2>} : (tensor<3x5x2x6xf32>) -> tensor<5x6xf32>
  return %s : tensor<5x6xf32>
}

// -----

// The number that a label picks is no product of an expert's.
// CHECK-LABEL: func.func @model
// CHECK-NOT: onnx.Gather
// CHECK: onnx.ReduceSum
func.func @model(%x: tensor<5x3xf32>, %i: tensor<5xi64>) -> tensor<5xf32> {
  %numbers = onnx.Constant dense<[0, 1, 2]> : tensor<3xi64>
  %n = onnx.Broadcast %numbers {dims = array<i64: 1>, shape = array<i64: 5, 3>} : (tensor<3xi64>) -> tensor<5x3xi64>
  %c = onnx.Broadcast %i {dims = array<i64: 0>, shape = array<i64: 5, 3>} : (tensor<5xi64>) -> tensor<5x3xi64>
  %hit = onnx.Equal %c, %n : (tensor<5x3xi64>, tensor<5x3xi64>) -> tensor<5x3xi1>
  %z = onnx.Constant dense<0.0> : tensor<5x3xf32>
  %k = onnx.Where %hit, %x, %z : (tensor<5x3xi1>, tensor<5x3xf32>, tensor<5x3xf32>) -> tensor<5x3xf32>
  %s = onnx.ReduceSum %k {axes = array<i64: 1>} : (tensor<5x3xf32>) -> tensor<5xf32>
  return %s : tensor<5xf32>
}
