// RUN: cleave-opt %s -form-clusters -lower-kernels-to-linalg -schedule-kernels=gpu=true -lower-kernels-to-gpu | FileCheck %s

// Elementwise: 256 threads of 4 elements a block; 100000 elements are 98 blocks. The end is done element by element.
// A row of 64 is a warp's: five shuffles, no shared memory. One of 4096 is shared by 256 threads, 16 elements each.
// A row of 32768 in 16 bits lies in shared memory from phase to phase; a thread reads four vectors of it together.
// Columns of 512: 32 lanes of 4 beside each other, 16 rows at a time.

// CHECK-LABEL: func.func @flat
// CHECK: plan.launch @[[FLAT:[a-z0-9_]+]]({{.*}}extent = 100000 : i64, grain = 1024 : i64
func.func @flat(%x: tensor<100000xf32>, %y: tensor<100000xf32>) -> tensor<100000xf32> {
  %0 = onnx.Mul %x, %y : (tensor<100000xf32>, tensor<100000xf32>) -> tensor<100000xf32>
  return %0 : tensor<100000xf32>
}
// CHECK-LABEL: func.func @softmax
// CHECK: plan.launch @[[WARP:[a-z0-9_]+]]({{.*}}extent = 1024 : i64, grain = 4 : i64
func.func @softmax(%x: tensor<1024x64xf32>) -> tensor<1024x64xf32> {
  %0 = onnx.ReduceMax %x {axes = array<i64: 1>} : (tensor<1024x64xf32>) -> tensor<1024xf32>
  %1 = onnx.Broadcast %0 {shape = array<i64: 1024, 64>, dims = array<i64: 0>} : (tensor<1024xf32>) -> tensor<1024x64xf32>
  %2 = onnx.Sub %x, %1 : (tensor<1024x64xf32>, tensor<1024x64xf32>) -> tensor<1024x64xf32>
  %3 = onnx.Exp %2 : (tensor<1024x64xf32>) -> tensor<1024x64xf32>
  %4 = onnx.ReduceSum %3 {axes = array<i64: 1>} : (tensor<1024x64xf32>) -> tensor<1024xf32>
  %5 = onnx.Broadcast %4 {shape = array<i64: 1024, 64>, dims = array<i64: 0>} : (tensor<1024xf32>) -> tensor<1024x64xf32>
  %6 = onnx.Div %3, %5 : (tensor<1024x64xf32>, tensor<1024x64xf32>) -> tensor<1024x64xf32>
  return %6 : tensor<1024x64xf32>
}
// CHECK-LABEL: func.func @wide
// CHECK: plan.launch @[[WIDE:[a-z0-9_]+]]({{.*}}extent = 32 : i64, grain = 1 : i64
func.func @wide(%x: tensor<32x4096xf32>) -> tensor<32x4096xf32> {
  %0 = onnx.ReduceSum %x {axes = array<i64: 1>} : (tensor<32x4096xf32>) -> tensor<32xf32>
  %1 = onnx.Broadcast %0 {shape = array<i64: 32, 4096>, dims = array<i64: 0>} : (tensor<32xf32>) -> tensor<32x4096xf32>
  %2 = onnx.Div %x, %1 : (tensor<32x4096xf32>, tensor<32x4096xf32>) -> tensor<32x4096xf32>
  return %2 : tensor<32x4096xf32>
}
// CHECK-LABEL: func.func @columns
// CHECK: plan.launch @[[COLUMNS:[a-z0-9_]+]]({{.*}}extent = 4 : i64, grain = 1 : i64
func.func @columns(%x: tensor<1024x512xf32>) -> tensor<512xf32> {
  %0 = onnx.ReduceSum %x {axes = array<i64: 0>} : (tensor<1024x512xf32>) -> tensor<512xf32>
  return %0 : tensor<512xf32>
}
// CHECK-LABEL: func.func @long
// CHECK: plan.launch @[[LONG:[a-z0-9_]+]]({{.*}}extent = 8 : i64, grain = 1 : i64
func.func @long(%x: tensor<8x32768xbf16>) -> tensor<8x32768xbf16> {
  %0 = onnx.ReduceMax %x {axes = array<i64: 1>} : (tensor<8x32768xbf16>) -> tensor<8xbf16>
  %1 = onnx.Broadcast %0 {shape = array<i64: 8, 32768>, dims = array<i64: 0>} : (tensor<8xbf16>) -> tensor<8x32768xbf16>
  %2 = onnx.Sub %x, %1 : (tensor<8x32768xbf16>, tensor<8x32768xbf16>) -> tensor<8x32768xbf16>
  %3 = onnx.Exp %2 : (tensor<8x32768xbf16>) -> tensor<8x32768xbf16>
  return %3 : tensor<8x32768xbf16>
}

// CHECK: gpu.module @kernels
// CHECK: llvm.mlir.global external @cleave_shared() {addr_space = 3
// CHECK: gpu.func @[[FLAT]](%{{.*}}: !llvm.ptr<1>, %{{.*}}: !llvm.ptr<1>, %{{.*}}: !llvm.ptr<1>, %[[EXTENT:.*]]: i64) kernel
// CHECK-SAME: known_block_size = array<i32: 256, 1, 1>
// CHECK: scf.if
// CHECK: scf.for
// CHECK: llvm.load {{.*}} f32
// CHECK: } else {
// CHECK: llvm.load {{.*}} {alignment = 16 : i64} : !llvm.ptr<1> -> vector<4xf32>
// CHECK: llvm.store {{.*}} vector<4xf32>

// CHECK: gpu.func @[[WARP]]
// CHECK-SAME: known_block_size = array<i32: 128, 1, 1>
// CHECK-NOT: gpu.barrier
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: math.exp %{{.*}} fastmath<contract> : f32
// CHECK-COUNT-5: gpu.shuffle xor
// CHECK: gpu.return

// Read once: what the second phase divides is still in registers.
// CHECK: gpu.func @[[WIDE]]
// CHECK-COUNT-4: llvm.load {{.*}} -> vector<4xf32>
// CHECK-NOT: llvm.load {{.*}} -> vector<4xf32>
// CHECK: gpu.barrier
// CHECK-COUNT-4: llvm.store {{.*}} vector<4xf32>

// CHECK: gpu.func @[[COLUMNS]]
// CHECK-SAME: known_block_size = array<i32: 512, 1, 1>
// CHECK: scf.for
// CHECK: gpu.barrier
// CHECK: scf.if
// CHECK: llvm.store

// CHECK: gpu.func @[[LONG]]
// CHECK-SAME: known_block_size = array<i32: 512, 1, 1>
// CHECK-SAME: plan.blocks = 2 : i64
// CHECK: scf.for
// CHECK-COUNT-4: llvm.load {{.*}} : !llvm.ptr<1> -> vector<8xbf16>
// CHECK-COUNT-4: llvm.store {{.*}} : vector<8xbf16>, !llvm.ptr<3>
// CHECK-NOT: llvm.load {{.*}} : !llvm.ptr<1> -> vector
// CHECK: gpu.barrier
// CHECK: scf.for
// CHECK: llvm.load {{.*}} : !llvm.ptr<3> -> vector<8xbf16>
// CHECK: math.exp {{.*}} fastmath<{{.*}}afn
// CHECK: llvm.store {{.*}} : vector<8xbf16>, !llvm.ptr<1>
