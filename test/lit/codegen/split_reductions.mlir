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


// Parts of 25,000 elements do not end where rows of 64 do: what only the sum needs is done on the parts, so that it can be
// one kernel with the sum.
// CHECK-LABEL: func.func @squares
// CHECK-NEXT: %[[R:.*]] = onnx.Reshape %arg0 {{.*}} -> tensor<64x25000xf32>
// CHECK-NEXT: %[[S:.*]] = onnx.Mul %[[R]], %[[R]]
// CHECK-NEXT: onnx.ReduceSum %[[S]] {axes = array<i64: 1>} {{.*}} -> tensor<64xf32>
// CHECK-NEXT: onnx.ReduceSum {{.*}} -> tensor<f32>
// CHECK-NEXT: return
func.func @squares(%x: tensor<25000x64xf32>) -> tensor<f32> {
  %0 = onnx.Mul %x, %x : (tensor<25000x64xf32>, tensor<25000x64xf32>) -> tensor<25000x64xf32>
  %1 = onnx.ReduceSum %0 {axes = array<i64: 0, 1>} : (tensor<25000x64xf32>) -> tensor<f32>
  return %1 : tensor<f32>
}

// What others read, too, is there in any case and is looked at in parts; a constant is made for them.
// CHECK-LABEL: func.func @read_twice
// CHECK: %[[M:.*]] = onnx.Mul %arg0, {{.*}} -> tensor<25000x64xf32>
// CHECK: %[[R:.*]] = onnx.Reshape %[[M]] {{.*}} -> tensor<64x25000xf32>
// CHECK: %[[C:.*]] = onnx.Constant {{.*}} : tensor<64x25000xf32>
// CHECK: %[[A:.*]] = onnx.Add %[[R]], %[[C]]
// CHECK: onnx.ReduceSum %[[A]] {axes = array<i64: 1>}
// CHECK: return %[[M]]
func.func @read_twice(%x: tensor<25000x64xf32>) -> (tensor<25000x64xf32>, tensor<f32>) {
  %c = onnx.Constant dense<2.0> : tensor<25000x64xf32>
  %0 = onnx.Mul %x, %x : (tensor<25000x64xf32>, tensor<25000x64xf32>) -> tensor<25000x64xf32>
  %1 = onnx.Add %0, %c : (tensor<25000x64xf32>, tensor<25000x64xf32>) -> tensor<25000x64xf32>
  %2 = onnx.ReduceSum %1 {axes = array<i64: 0, 1>} : (tensor<25000x64xf32>) -> tensor<f32>
  return %0, %2 : tensor<25000x64xf32>, tensor<f32>
}

// A kernel that repeats a row would stand in memory, too: the sum alone looks at parts.
// CHECK-LABEL: func.func @repeated
// CHECK: %[[S:.*]] = onnx.Sub {{.*}} -> tensor<25000x64xf32>
// CHECK: onnx.Reshape %[[S]] {{.*}} -> tensor<64x25000xf32>
func.func @repeated(%x: tensor<25000x64xf32>, %row: tensor<64xf32>) -> tensor<f32> {
  %0 = onnx.Broadcast %row {dims = array<i64: 1>, shape = array<i64: 25000, 64>} : (tensor<64xf32>) -> tensor<25000x64xf32>
  %1 = onnx.Sub %x, %0 : (tensor<25000x64xf32>, tensor<25000x64xf32>) -> tensor<25000x64xf32>
  %2 = onnx.ReduceSum %1 {axes = array<i64: 0, 1>} : (tensor<25000x64xf32>) -> tensor<f32>
  return %2 : tensor<f32>
}

// On a GPU a batch norm's mean, its variance and the sum of what is centred are made in one pass over the tensor, each
// part's elements less the first of them: a part is a sample here.
// CHECK-LABEL: func.func @moments
// CHECK-NOT: onnx.Slice
// GPU-LABEL: func.func @moments
// GPU: %[[X:.*]] = onnx.Cast %arg0
// GPU: %[[FIRST:.*]] = onnx.Slice %arg0 {sizes = array<i64: 128, 1, 1, 64>, starts = array<i64: 0, 0, 0, 0>, steps = array<i64: 1, 32, 32, 1>}
// GPU: %[[K:.*]] = onnx.Cast {{.*}} -> tensor<128x64xf32>
// GPU: %[[SHIFTED:.*]] = onnx.Sub {{.*}} -> tensor<128x1024x64xf32>
// GPU: %[[S:.*]] = onnx.ReduceSum %[[SHIFTED]] {axes = array<i64: 1>}
// GPU: %[[SQUARES:.*]] = onnx.Mul %[[SHIFTED]], %[[SHIFTED]]
// GPU: %[[Q:.*]] = onnx.ReduceSum %[[SQUARES]] {axes = array<i64: 1>}
// GPU: %[[W:.*]] = onnx.Sub %[[Q]],
// GPU: onnx.Add {{.*}}, %[[S]]
// GPU-NEXT: onnx.ReduceSum {{.*}} {axes = array<i64: 0>} {{.*}} -> tensor<64xf32>
// GPU: onnx.Sub %[[K]],
// GPU: onnx.Add %[[W]],
// GPU-NEXT: onnx.ReduceSum {{.*}} {axes = array<i64: 0>} {{.*}} -> tensor<64xf32>
// GPU: onnx.Sub %[[K]],
// GPU: onnx.ReduceSum {{.*}} {axes = array<i64: 0>} {{.*}} -> tensor<64xf32>
// GPU-NOT: axes = array<i64: 0, 1, 2>
// GPU: return
func.func @moments(%x: tensor<128x32x32x64xbf16>, %n: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) {
  %0 = onnx.Cast %x {to = f32} : (tensor<128x32x32x64xbf16>) -> tensor<128x32x32x64xf32>
  %1 = onnx.ReduceSum %0 {axes = array<i64: 0, 1, 2>} : (tensor<128x32x32x64xf32>) -> tensor<64xf32>
  %2 = onnx.Mul %1, %n : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %3 = onnx.Broadcast %2 {dims = array<i64: 3>, shape = array<i64: 128, 32, 32, 64>} : (tensor<64xf32>) -> tensor<128x32x32x64xf32>
  %4 = onnx.Sub %0, %3 : (tensor<128x32x32x64xf32>, tensor<128x32x32x64xf32>) -> tensor<128x32x32x64xf32>
  %5 = onnx.Mul %4, %4 : (tensor<128x32x32x64xf32>, tensor<128x32x32x64xf32>) -> tensor<128x32x32x64xf32>
  %6 = onnx.ReduceSum %5 {axes = array<i64: 0, 1, 2>} : (tensor<128x32x32x64xf32>) -> tensor<64xf32>
  %7 = onnx.ReduceSum %4 {axes = array<i64: 0, 1, 2>} : (tensor<128x32x32x64xf32>) -> tensor<64xf32>
  return %2, %6, %7 : tensor<64xf32>, tensor<64xf32>, tensor<64xf32>
}

// On a GPU parts end where rows do, if a quarter of the parts can: so the squares are one kernel with what makes x.
// GPU-LABEL: func.func @whole_rows
// GPU: onnx.Reshape {{.*}} -> tensor<192x201216xf32>
func.func @whole_rows(%x: tensor<50304x768xf32>) -> tensor<f32> {
  %0 = onnx.ReduceSum %x {axes = array<i64: 0, 1>} : (tensor<50304x768xf32>) -> tensor<f32>
  return %0 : tensor<f32>
}
