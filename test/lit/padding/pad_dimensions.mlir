// RUN: cleave-opt %s --pad-dimensions="multiple=4 most=0.7" | FileCheck %s
// RUN: cleave-opt %s --pad-dimensions="multiple=4 most=0.01" | FileCheck %s --check-prefix=AS-IT-IS
// RUN: cleave-opt %s --pad-dimensions="multiple-of-inputs=2 most=0.5" | FileCheck %s --check-prefix=INPUTS
// Three inputs, six features and five classes become four, eight and eight. The two samples stay.

// CHECK: onnx.param @first : tensor<4x8xf32> "parameter" {{.*}}onnx.stored_shape = array<i64: 3, 6>
// CHECK: onnx.param @second : tensor<8x8xf32> "parameter" {{.*}}onnx.stored_shape = array<i64: 6, 5>
// CHECK: %[[X:.*]] = onnx.Contract %{{.*}} : (tensor<2x4xf32>, tensor<4x8xf32>) -> tensor<2x8xf32>
// A sigmoid of nothing is a half: before the sum it becomes zero, so that no gradient comes to padded rows of @second.
// CHECK: %[[S:.*]] = onnx.Sigmoid %[[X]]
// CHECK: %[[I:.*]] = onnx.Iota {{.*}}type = tensor<8xi64>
// CHECK: %[[SIX:.*]] = onnx.Constant {{.*}}dense<6> : tensor<8xi64>
// CHECK: onnx.Less %[[I]], %[[SIX]]
// CHECK: %[[H:.*]] = onnx.Where %{{.*}}, %[[S]], %{{.*}}
// CHECK: %[[Y:.*]] = onnx.Contract %[[H]], {{.*}} -> tensor<2x8xf32>
// The largest of five is not one of the other three; its exponentials are then zero, and the sum needs no more.
// CHECK: onnx.Constant {{.*}}dense<0xFF800000> : tensor<2x8xf32>
// CHECK: %[[Z:.*]] = onnx.Where %{{.*}}, %[[Y]], %{{.*}}
// CHECK: %[[M:.*]] = onnx.ReduceMax %[[Z]]
// CHECK: onnx.Sub %[[Z]],
// CHECK: %[[E:.*]] = onnx.Exp
// CHECK: onnx.ReduceSum %[[E]]

// AS-IT-IS-NOT: stored_shape
// INPUTS: onnx.param @first : tensor<4x6xf32>
// INPUTS: onnx.param @second : tensor<6x5xf32>
// INPUTS: onnx.Pad %arg0 {high = array<i64: 0, 1>
module {
  onnx.param @first : tensor<3x6xf32> "parameter" {trainable = true, fill = 0.0}
  onnx.param @second : tensor<6x5xf32> "parameter" {trainable = true, fill = 0.0}
  func.func @model(%x: tensor<2x3xf32>) -> tensor<2xf32> {
    %first = onnx.read @first : tensor<3x6xf32>
    %second = onnx.read @second : tensor<6x5xf32>
    %h = onnx.Contract %x, %first {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x3xf32>, tensor<3x6xf32>) -> tensor<2x6xf32>
    %s = onnx.Sigmoid %h : (tensor<2x6xf32>) -> tensor<2x6xf32>
    %y = onnx.Contract %s, %second {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<2x6xf32>, tensor<6x5xf32>) -> tensor<2x5xf32>
    %max = onnx.ReduceMax %y {axes = array<i64: 1>} : (tensor<2x5xf32>) -> tensor<2xf32>
    %all = onnx.Broadcast %max {dims = array<i64: 0>, shape = array<i64: 2, 5>} : (tensor<2xf32>) -> tensor<2x5xf32>
    %z = onnx.Sub %y, %all : (tensor<2x5xf32>, tensor<2x5xf32>) -> tensor<2x5xf32>
    %e = onnx.Exp %z : (tensor<2x5xf32>) -> tensor<2x5xf32>
    %sum = onnx.ReduceSum %e {axes = array<i64: 1>} : (tensor<2x5xf32>) -> tensor<2xf32>
    return %sum : tensor<2xf32>
  }
}
