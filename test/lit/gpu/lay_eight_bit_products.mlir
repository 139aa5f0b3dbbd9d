// RUN: cleave-opt %s --lay-eight-bit-products 2>&1 | FileCheck %s
// RUN: cleave-opt %s --lay-eight-bit-products --form-clusters --lower-library-ops 2>/dev/null | FileCheck %s --check-prefix=LAID

// CHECK: warning: 1 of a step's 3 products on 8 bits have a size on a device that is no multiple of 16{{.*}} in bf16
// CHECK-LABEL: func.func @f
// CHECK:       onnx.Contract %arg0, %arg1 {{.*}}onnx.k_major
// CHECK:       %[[A:.*]] = onnx.Cast %arg2 {{.*}} -> tensor<24x32xbf16>
// CHECK:       %[[B:.*]] = onnx.Cast %arg1 {{.*}} -> tensor<32x48xbf16>
// CHECK:       onnx.Contract %[[A]], %[[B]] {{.*}} -> tensor<24x48xf32>

// The weight's rows become its columns; the input lies as it must.
// LAID-LABEL:  func.func @f
// LAID:        %[[W:.*]] = plan.copy %arg1 {{.*}} -> tensor<48x32xf8E4M3FN>
// LAID:        plan.contract %arg0, %[[W]] {{.*}}lhs_strides = array<i64: 32, 1>{{.*}}rhs_strides = array<i64: 1, 32>

// The sizes of 2 and 40 are together a multiple of 16: their product is one, and its result is copied.
// CHECK-LABEL: func.func @heads
// CHECK:       onnx.Contract %arg0, %arg1 {{.*}}onnx.k_major
// LAID-LABEL:  func.func @heads
// LAID:        plan.contract %arg0, {{.*}} {batch = array<i64>, k = 32 : i64, {{.*}} m = 128 : i64, n = 80 : i64, {{.*}} -> tensor<8x16x2x40xbf16>
// LAID:        plan.copy {{.*}} -> tensor<8x2x16x40xbf16>

// Evaluation repeats the products of the step.
// CHECK-LABEL: func.func @evaluate
// CHECK:       onnx.Cast
func.func @f(%x: tensor<64x32xf8E4M3FN>, %w: tensor<32x48xf8E4M3FN>, %d: tensor<24x32xf8E5M2>) -> (tensor<64x48xbf16>, tensor<24x48xf32>) {
  %y = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<64x32xf8E4M3FN>, tensor<32x48xf8E4M3FN>) -> tensor<64x48xbf16>
  %z = onnx.Contract %d, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<24x32xf8E5M2>, tensor<32x48xf8E4M3FN>) -> tensor<24x48xf32>
  return %y, %z : tensor<64x48xbf16>, tensor<24x48xf32>
}
func.func @heads(%x: tensor<8x16x32xf8E4M3FN>, %w: tensor<32x2x40xf8E4M3FN>) -> tensor<8x2x16x40xbf16> {
  %y = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 2, 3, 4>, result_indices = array<i64: 0, 3, 1, 4>} : (tensor<8x16x32xf8E4M3FN>, tensor<32x2x40xf8E4M3FN>) -> tensor<8x2x16x40xbf16>
  return %y : tensor<8x2x16x40xbf16>
}
func.func @evaluate(%w: tensor<32x48xf8E4M3FN>, %d: tensor<24x32xf8E5M2>) -> tensor<24x48xf32> {
  %z = onnx.Contract %d, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<24x32xf8E5M2>, tensor<32x48xf8E4M3FN>) -> tensor<24x48xf32>
  return %z : tensor<24x48xf32>
}
