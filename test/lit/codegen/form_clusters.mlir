// RUN: cleave-opt %s --form-clusters | FileCheck %s

// A product is a border: what feeds it and what follows it are two kernels, in order.
// CHECK-LABEL: func.func @around_a_product
// CHECK: %[[A:.*]] = plan.launch @[[EXP:k[0-9]+_exp]](%arg0)
// CHECK: %[[C:.*]] = onnx.Contract %[[A]], %arg1
// CHECK: plan.launch @[[ADD:k[0-9]+_add_tanh]](%[[C]], %[[A]])
func.func @around_a_product(%x: tensor<8x8xf32>, %w: tensor<8x8xf32>) -> tensor<8x8xf32> {
  %0 = onnx.Exp %x : (tensor<8x8xf32>) -> tensor<8x8xf32>
  %1 = onnx.Contract %0, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %2 = onnx.Add %1, %0 : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %3 = onnx.Tanh %2 : (tensor<8x8xf32>) -> tensor<8x8xf32>
  return %3 : tensor<8x8xf32>
}

// What is made from %x alone waits for the product and is one kernel with it, though two of its operations read %s.
// CHECK-LABEL: func.func @late_together
// CHECK: %[[C:.*]] = onnx.Contract %arg0, %arg1
// CHECK: plan.launch @{{k[0-9]+_sigmoid_sub_mul}}(%arg0, %[[C]])
// CHECK-NOT: plan.launch
// CHECK: return
func.func @late_together(%x: tensor<256x256xf32>, %w: tensor<256x256xf32>) -> tensor<256x256xf32> {
  %one = onnx.Constant dense<1.0> : tensor<256x256xf32>
  %s = onnx.Sigmoid %x : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %r = onnx.Sub %one, %s : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %m = onnx.Mul %s, %r : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %c = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %g = onnx.Mul %c, %m : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  return %g : tensor<256x256xf32>
}

// The same elementwise kernel serves another size.
// CHECK-LABEL: func.func @another_size
// CHECK: plan.launch @[[EXP]](%arg0) {{.*}} : (tensor<100xf32>) -> tensor<100xf32>
func.func @another_size(%x: tensor<100xf32>) -> tensor<100xf32> {
  %0 = onnx.Exp %x : (tensor<100xf32>) -> tensor<100xf32>
  return %0 : tensor<100xf32>
}

// A Reshape behind a kernel stays a view outside it.
// CHECK-LABEL: func.func @view_behind
// CHECK: %[[B:.*]] = plan.launch @{{k[0-9]+_neg}}(%arg0) {{.*}} -> tensor<4x6xf32>
// CHECK: onnx.Reshape %[[B]]
func.func @view_behind(%x: tensor<4x6xf32>) -> tensor<24xf32> {
  %0 = onnx.Neg %x : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %1 = onnx.Reshape %0 {shape = array<i64: 24>} : (tensor<4x6xf32>) -> tensor<24xf32>
  return %1 : tensor<24xf32>
}

// What has no elements is not computed; a sum of it is.
// CHECK-LABEL: func.func @nothing
// CHECK-NOT: onnx.Abs
// CHECK: plan.launch @{{k[0-9]+_reducesum}}(
// CHECK: return
func.func @nothing(%x: tensor<2x0x4xf32>) -> tensor<2x4xf32> {
  %0 = onnx.Abs %x : (tensor<2x0x4xf32>) -> tensor<2x0x4xf32>
  %1 = onnx.ReduceSum %0 {axes = array<i64: 1>} : (tensor<2x0x4xf32>) -> tensor<2x4xf32>
  return %1 : tensor<2x4xf32>
}

// Where a device's indices start becomes a scalar of the launch; the kernel no longer names the mesh.
// CHECK-LABEL: func.func @vocabulary_part
// CHECK: plan.launch @[[HIT:k[0-9]+_iota_equal]](%arg0)
// CHECK-SAME: scalars = [#plan.affine<base = 0, axes = {{\[\[}}"tp"]], strides = [8]>]
func.func @vocabulary_part(%t: tensor<4xi64>) -> tensor<4x8xi1> {
  %0 = onnx.Iota {type = tensor<4x8xi64>, dim = 1 : i64, shard_axes = ["tp"]} : () -> tensor<4x8xi64>
  %1 = onnx.Broadcast %t {shape = array<i64: 4, 8>, dims = array<i64: 0>} : (tensor<4xi64>) -> tensor<4x8xi64>
  %2 = onnx.Equal %0, %1 : (tensor<4x8xi64>, tensor<4x8xi64>) -> tensor<4x8xi1>
  return %2 : tensor<4x8xi1>
}

// Row sums and column sums do not share a loop nest.
// CHECK-LABEL: func.func @rows_and_columns
// CHECK-COUNT-2: plan.launch
// CHECK: return
func.func @rows_and_columns(%x: tensor<8x16xf32>) -> (tensor<8xf32>, tensor<16xf32>) {
  %0 = onnx.ReduceSum %x {axes = array<i64: 1>} : (tensor<8x16xf32>) -> tensor<8xf32>
  %1 = onnx.ReduceSum %x {axes = array<i64: 0>} : (tensor<8x16xf32>) -> tensor<16xf32>
  return %0, %1 : tensor<8xf32>, tensor<16xf32>
}

// A sum is not put off for what is small itself but large beside the sum: %y would stay until %u has been made.
// CHECK-LABEL: func.func @sum_of_small
// CHECK: %[[Y:.*]] = onnx.Contract
// CHECK: %[[S:.*]] = plan.launch @{{k[0-9]+_reducesum}}(%[[Y]])
// CHECK: onnx.Contract
// CHECK: %[[U:.*]] = onnx.Contract
// CHECK: plan.launch @{{k[0-9]+_mul}}(%[[S]], %[[U]])
func.func @sum_of_small(%x: tensor<64x64xf32>, %w: tensor<64x64xf32>, %v: tensor<64xf32>) -> tensor<64xf32> {
  %y = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %s = onnx.ReduceSum %y {axes = array<i64: 0>} : (tensor<64x64xf32>) -> tensor<64xf32>
  %z = onnx.Contract %y, %v {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1>, result_indices = array<i64: 0>} : (tensor<64x64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %u = onnx.Contract %w, %z {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1>, result_indices = array<i64: 0>} : (tensor<64x64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %m = onnx.Mul %s, %u : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %m : tensor<64xf32>
}

// What 18 operations make of %y is made where it is wanted: %y stays until then, which the sum reads early.
// CHECK-LABEL: func.func @long_way
// CHECK: %[[Y:.*]] = onnx.Contract
// CHECK: plan.launch @{{k[0-9]+_reducesum}}(%[[Y]])
// CHECK-COUNT-2: onnx.Contract
// CHECK: %[[U:.*]] = onnx.Contract
// CHECK-NEXT: plan.launch @{{k[0-9]+_exp_neg_add_mul}}(%[[Y]], %[[U]])
func.func @long_way(%x: tensor<256x256xf32>, %w: tensor<256x256xf32>, %v: tensor<256xf32>) -> (tensor<256x256xf32>, tensor<256xf32>) {
  %y = onnx.Contract %x, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %s = onnx.ReduceSum %y {axes = array<i64: 0>} : (tensor<256x256xf32>) -> tensor<256xf32>
  %z = onnx.Contract %w, %v {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1>, result_indices = array<i64: 0>} : (tensor<256x256xf32>, tensor<256xf32>) -> tensor<256xf32>
  %t = onnx.Contract %w, %z {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1>, result_indices = array<i64: 0>} : (tensor<256x256xf32>, tensor<256xf32>) -> tensor<256xf32>
  %u = onnx.Contract %w, %t {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1>, result_indices = array<i64: 0>} : (tensor<256x256xf32>, tensor<256xf32>) -> tensor<256xf32>
  %a0 = onnx.Exp %y : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %b0 = onnx.Neg %y : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %a1 = onnx.Exp %a0 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %b1 = onnx.Neg %b0 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %a2 = onnx.Exp %a1 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %b2 = onnx.Neg %b1 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %a3 = onnx.Exp %a2 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %b3 = onnx.Neg %b2 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %a4 = onnx.Exp %a3 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %b4 = onnx.Neg %b3 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %a5 = onnx.Exp %a4 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %b5 = onnx.Neg %b4 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %a6 = onnx.Exp %a5 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %b6 = onnx.Neg %b5 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %a7 = onnx.Exp %a6 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %b7 = onnx.Neg %b6 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %a8 = onnx.Exp %a7 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %b8 = onnx.Neg %b7 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %sum = onnx.Add %a8, %b8 : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  %b = onnx.Broadcast %u {shape = array<i64: 256, 256>, dims = array<i64: 1>} : (tensor<256xf32>) -> tensor<256x256xf32>
  %m = onnx.Mul %sum, %b : (tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>
  return %m, %s : tensor<256x256xf32>, tensor<256xf32>
}

// An update's kernel rounds every operation by itself: on two stages that hold a tied parameter, other operations are
// merged with the same update, and a multiplication and an addition must not be fused in one of them only.
// CHECK-LABEL: func.func @update
// CHECK: plan.launch @[[UPDATE:k[0-9]+_mul_add]](%arg0, %arg1)
func.func @update(%g: tensor<64x64xf32>, %m: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %0 = onnx.Mul %g, %g {place.at = #place.at<phase = update>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = onnx.Add %0, %m {place.at = #place.at<phase = update>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  return %1 : tensor<64x64xf32>
}

// What replaces a state and what else the update makes of it are one kernel: the new state takes the old one's place.
// CHECK-LABEL: func.func @replaces_a_state
// CHECK: plan.launch @{{k[0-9]+}}_add_sign_mul(
// CHECK-NOT: plan.launch
// CHECK: return
onnx.param @m : tensor<64x64xf32> "optimizer_state" {fill = 0.000000e+00 : f64, trainable = false}
func.func @replaces_a_state(%g: tensor<64x64xf32>) -> tensor<64x64xf32> {
  %m = onnx.read @m {place.at = #place.at<phase = update>} : tensor<64x64xf32>
  %0 = onnx.Add %m, %g {place.at = #place.at<phase = update>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  %1 = onnx.Sign %0 {place.at = #place.at<phase = update>} : (tensor<64x64xf32>) -> tensor<64x64xf32>
  %2 = onnx.Mul %m, %g {place.at = #place.at<phase = update>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
  onnx.write @m, %2 {place.at = #place.at<phase = update>} : tensor<64x64xf32>
  return %1 : tensor<64x64xf32>
}

// A tensor that a kernel widens for its sums is widened again in the kernel behind: it stands in memory in 16 bits only.
// CHECK-LABEL: func.func @widened_where_read
// CHECK: %[[P:.*]] = plan.launch @{{k[0-9]+_cast_reducesum}}(%arg0) {{.*}} : (tensor<8x64x64xbf16>) -> tensor<8x64xf32>
// CHECK: %[[S:.*]] = plan.launch @{{k[0-9]+_reducesum}}(%[[P]])
// CHECK: plan.launch @{{k[0-9]+_cast_sub}}(%[[S]], %arg0) {{.*}} -> tensor<8x64x64xf32>
// CHECK-NOT: plan.launch
// CHECK: return
func.func @widened_where_read(%x: tensor<8x64x64xbf16>) -> tensor<8x64x64xf32> {
  %0 = onnx.Cast %x {to = f32} : (tensor<8x64x64xbf16>) -> tensor<8x64x64xf32>
  %p = onnx.ReduceSum %0 {axes = array<i64: 1>} : (tensor<8x64x64xf32>) -> tensor<8x64xf32>
  %1 = onnx.ReduceSum %p {axes = array<i64: 0>} : (tensor<8x64xf32>) -> tensor<64xf32>
  %2 = onnx.Broadcast %1 {shape = array<i64: 8, 64, 64>, dims = array<i64: 2>} : (tensor<64xf32>) -> tensor<8x64x64xf32>
  %3 = onnx.Sub %0, %2 : (tensor<8x64x64xf32>, tensor<8x64x64xf32>) -> tensor<8x64x64xf32>
  return %3 : tensor<8x64x64xf32>
}

// A product of two tensors would be read as two: it is stored once and read as one.
// CHECK-LABEL: func.func @stored_where_made
// CHECK: %[[P:.*]]:2 = plan.launch @{{k[0-9]+_mul_reducesum}}(%arg0, %arg1)
// CHECK: %[[S:.*]] = plan.launch @{{k[0-9]+_reducesum}}(%[[P]]#1)
// CHECK: plan.launch @{{k[0-9]+_sub}}(%[[S]], %[[P]]#0)
func.func @stored_where_made(%x: tensor<8x64x64xf32>, %y: tensor<8x64x64xf32>) -> tensor<8x64x64xf32> {
  %0 = onnx.Mul %x, %y : (tensor<8x64x64xf32>, tensor<8x64x64xf32>) -> tensor<8x64x64xf32>
  %p = onnx.ReduceSum %0 {axes = array<i64: 1>} : (tensor<8x64x64xf32>) -> tensor<8x64xf32>
  %1 = onnx.ReduceSum %p {axes = array<i64: 0>} : (tensor<8x64xf32>) -> tensor<64xf32>
  %2 = onnx.Broadcast %1 {shape = array<i64: 8, 64, 64>, dims = array<i64: 2>} : (tensor<64xf32>) -> tensor<8x64x64xf32>
  %3 = onnx.Sub %0, %2 : (tensor<8x64x64xf32>, tensor<8x64x64xf32>) -> tensor<8x64x64xf32>
  return %3 : tensor<8x64x64xf32>
}

// The parts of two sums that one kernel makes are added up by one kernel.
// CHECK-LABEL: func.func @parts_of_one_kernel
// CHECK: %[[P:.*]]:2 = plan.launch @{{k[0-9]+_.*}}(%arg0, %arg1)
// CHECK: plan.launch @{{k[0-9]+_reducesum}}(%[[P]]#0, %[[P]]#1) {{.*}} -> (tensor<16xf32>, tensor<16xf32>)
// CHECK-NOT: plan.launch
// CHECK: return
func.func @parts_of_one_kernel(%x: tensor<8x64x16xf32>, %y: tensor<8x64x16xf32>) -> (tensor<16xf32>, tensor<16xf32>) {
  %0 = onnx.Mul %x, %y : (tensor<8x64x16xf32>, tensor<8x64x16xf32>) -> tensor<8x64x16xf32>
  %1 = onnx.ReduceSum %0 {axes = array<i64: 1>} : (tensor<8x64x16xf32>) -> tensor<8x16xf32>
  %2 = onnx.ReduceSum %x {axes = array<i64: 1>} : (tensor<8x64x16xf32>) -> tensor<8x16xf32>
  %3 = onnx.ReduceSum %1 {axes = array<i64: 0>} : (tensor<8x16xf32>) -> tensor<16xf32>
  %4 = onnx.ReduceSum %2 {axes = array<i64: 0>} : (tensor<8x16xf32>) -> tensor<16xf32>
  return %3, %4 : tensor<16xf32>, tensor<16xf32>
}

// An update leaves the kernel that makes its gradient when a kernel behind that one reads the old parameter: the new
// one can then take its place.
// CHECK-LABEL: func.func @released_update
// CHECK: %[[P:.*]] = plan.launch @{{k[0-9]+_reducesum}}(%arg0) {{.*}}place.at = #place.at<phase = backward
// CHECK: %[[S:.*]]:2 = plan.launch @{{k[0-9]+_reducesum_mul}}(%[[P]]{{.*}}) {{.*}}place.at = #place.at<phase = backward
// CHECK: %[[Y:.*]] = plan.launch @{{.*}}(%{{.*}}) {{.*}}place.at = #place.at<phase = backward{{.*}} -> tensor<8x64x64xf32>
// CHECK: %[[W:.*]] = plan.launch @{{k[0-9]+_sub}}(%{{.*}}) {{.*}}place.at = #place.at<phase = update
// CHECK: onnx.write @scale, %[[W]]
// CHECK: return %[[Y]]
onnx.param @scale : tensor<64xf32> "parameter" {fill = 1.0 : f64, trainable = true}
func.func @released_update(%x: tensor<8x64x64xf32>) -> tensor<8x64x64xf32> {
  %w = onnx.read @scale {place.at = #place.at<phase = forward>} : tensor<64xf32>
  %p = onnx.ReduceSum %x {axes = array<i64: 1>, place.at = #place.at<phase = backward>} : (tensor<8x64x64xf32>) -> tensor<8x64xf32>
  %g = onnx.ReduceSum %p {axes = array<i64: 0>, place.at = #place.at<phase = backward>} : (tensor<8x64xf32>) -> tensor<64xf32>
  %d = onnx.Mul %g, %g {place.at = #place.at<phase = backward>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %bd = onnx.Broadcast %d {shape = array<i64: 8, 64, 64>, dims = array<i64: 2>, place.at = #place.at<phase = backward>} : (tensor<64xf32>) -> tensor<8x64x64xf32>
  %bw = onnx.Broadcast %w {shape = array<i64: 8, 64, 64>, dims = array<i64: 2>, place.at = #place.at<phase = backward>} : (tensor<64xf32>) -> tensor<8x64x64xf32>
  %m = onnx.Mul %x, %bw {place.at = #place.at<phase = backward>} : (tensor<8x64x64xf32>, tensor<8x64x64xf32>) -> tensor<8x64x64xf32>
  %y = onnx.Sub %m, %bd {place.at = #place.at<phase = backward>} : (tensor<8x64x64xf32>, tensor<8x64x64xf32>) -> tensor<8x64x64xf32>
  %n = onnx.Sub %w, %g {place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  onnx.write @scale, %n {place.at = #place.at<phase = update>} : tensor<64xf32>
  return %y : tensor<8x64x64xf32>
}

// What a product and a later kernel read is stored, but the later kernel reads %x alone and makes it again.
// CHECK-LABEL: func.func @made_again_beside_its_source
// CHECK: %[[R:.*]] = plan.launch @{{.*}}_cast_relu(%arg0)
// CHECK: %[[C:.*]] = onnx.Contract %[[R]], %arg1
// CHECK: plan.launch @{{.*}}_cast_relu_add_mul(%arg0, %[[C]])
func.func @made_again_beside_its_source(%x: tensor<256x256xbf16>, %w: tensor<256x256xbf16>) -> tensor<256x256xbf16> {
  %0 = onnx.Cast %x {to = f32} : (tensor<256x256xbf16>) -> tensor<256x256xf32>
  %1 = onnx.Relu %0 : (tensor<256x256xf32>) -> tensor<256x256xf32>
  %r = onnx.Cast %1 {to = bf16} : (tensor<256x256xf32>) -> tensor<256x256xbf16>
  %c = onnx.Contract %r, %w {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<256x256xbf16>, tensor<256x256xbf16>) -> tensor<256x256xbf16>
  %2 = onnx.Add %c, %r : (tensor<256x256xbf16>, tensor<256x256xbf16>) -> tensor<256x256xbf16>
  %3 = onnx.Mul %2, %x : (tensor<256x256xbf16>, tensor<256x256xbf16>) -> tensor<256x256xbf16>
  return %3 : tensor<256x256xbf16>
}

// A sum in 16 bits, widened for two kernels, is stored in 16 bits.
// CHECK-LABEL: func.func @widened_by_its_readers
// CHECK: %[[S:.*]]:2 = plan.launch {{.*}} -> (tensor<64x1024xbf16>, tensor<1024xf32>)
// CHECK: plan.launch @{{.*}}_cast_mul(%{{.*}}, %[[S]]#0)
func.func @widened_by_its_readers(%a: tensor<64x1024xf32>, %b: tensor<64x1024xf32>) -> (tensor<64x1024xf32>) {
  %0 = onnx.Add %a, %b : (tensor<64x1024xf32>, tensor<64x1024xf32>) -> tensor<64x1024xf32>
  %1 = onnx.Cast %0 {to = bf16} : (tensor<64x1024xf32>) -> tensor<64x1024xbf16>
  %2 = onnx.Cast %1 {to = f32} : (tensor<64x1024xbf16>) -> tensor<64x1024xf32>
  %3 = onnx.ReduceSum %2 {axes = array<i64: 0>} : (tensor<64x1024xf32>) -> tensor<1024xf32>
  %4 = onnx.ReduceSum %3 {axes = array<i64: 0>} : (tensor<1024xf32>) -> tensor<f32>
  %5 = onnx.Broadcast %4 {dims = array<i64>, shape = array<i64: 64, 1024>} : (tensor<f32>) -> tensor<64x1024xf32>
  %6 = onnx.Mul %2, %5 : (tensor<64x1024xf32>, tensor<64x1024xf32>) -> tensor<64x1024xf32>
  return %6 : tensor<64x1024xf32>
}

// CHECK: plan.kernel @[[EXP]](%{{.*}}: tensor<4096xf32>)
// CHECK-SAME: flat
// CHECK: plan.kernel @[[HIT]](%{{.*}}: tensor<4xi64>, %{{.*}}: i64)
// CHECK: onnx.Iota {{.*}}plan.scalar = 0 : i64
// CHECK-NOT: shard_axes
// CHECK: plan.kernel @[[UPDATE]]({{.*}} attributes {{.*}}rounds_each
