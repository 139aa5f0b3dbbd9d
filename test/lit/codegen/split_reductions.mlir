// RUN: cleave-opt %s --split-reductions | FileCheck %s
// RUN: cleave-opt %s --split-reductions=gpu=true | FileCheck %s --check-prefix=GPU

// CHECK-LABEL: func.func @loss
// CHECK: %[[R:.*]] = onnx.Reshape %arg0 {{.*}} -> tensor<64x16384xf32>
// CHECK: %[[P:.*]] = onnx.ReduceSum %[[R]] {axes = array<i64: 1>} {{.*}} -> tensor<64xf32>
// CHECK: onnx.ReduceSum %[[P]] {axes = array<i64: 0>} {{.*}} -> tensor<f32>
func.func @loss(%x: tensor<512x2048xf32>) -> tensor<f32> {
  %0 = onnx.ReduceSum %x {axes = array<i64: 0, 1>} : (tensor<512x2048xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}

// Enough rows to share: left alone.
// CHECK-LABEL: func.func @rows
// CHECK-NEXT: onnx.ReduceSum
// CHECK-NEXT: return
func.func @rows(%x: tensor<512x20480xf32>) -> tensor<512xf32> {
  %0 = onnx.ReduceSum %x {axes = array<i64: 1>} : (tensor<512x20480xf32>) -> tensor<512xf32>
  return %0 : tensor<512xf32>
}

// On a GPU 768 columns are only six blocks: the gradient of a bias is cut.
// CHECK-LABEL: func.func @bias_gradient
// CHECK-NEXT: onnx.ReduceSum
// CHECK-NEXT: return
// GPU-LABEL: func.func @bias_gradient
// GPU: onnx.ReduceSum {{.*}} -> tensor<64x768xf32>
// GPU: onnx.ReduceSum {{.*}} -> tensor<768xf32>
func.func @bias_gradient(%x: tensor<8192x768xf32>) -> tensor<768xf32> {
  %0 = onnx.ReduceSum %x {axes = array<i64: 0>} : (tensor<8192x768xf32>) -> tensor<768xf32>
  return %0 : tensor<768xf32>
}

// Of a batch normalization's sums the samples are cut: the elements of a channel stay side by side.
// CHECK-LABEL: func.func @channels
// CHECK: onnx.ReduceSum {{.*}} -> tensor<32x8xf32>
// CHECK: onnx.ReduceSum {{.*}} {axes = array<i64: 0>} {{.*}} -> tensor<8xf32>
// GPU-LABEL: func.func @channels
// GPU: onnx.ReduceSum {{.*}} -> tensor<32x8xf32>
func.func @channels(%x: tensor<32x8x32x32xf32>) -> tensor<8xf32> {
  %0 = onnx.ReduceSum %x {axes = array<i64: 0, 2, 3>} : (tensor<32x8x32x32xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}

// With few samples its images are, in parts of 256 elements.
// CHECK-LABEL: func.func @images
// CHECK: onnx.ReduceSum {{.*}} (tensor<4x8x16x256xf32>) -> tensor<8x16xf32>
// CHECK: onnx.ReduceSum {{.*}} -> tensor<8xf32>
func.func @images(%x: tensor<4x8x64x64xf32>) -> tensor<8xf32> {
  %0 = onnx.ReduceSum %x {axes = array<i64: 0, 2, 3>} : (tensor<4x8x64x64xf32>) -> tensor<8xf32>
  return %0 : tensor<8xf32>
}
