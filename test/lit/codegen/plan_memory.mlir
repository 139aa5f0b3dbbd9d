// RUN: cleave-opt %s --plan-memory --verify-plan | FileCheck %s

// Persistent tensors first: weights, sums of gradients, then the optimizer's state; @m is split, two devices hold half each.
// CHECK: module attributes {dist.mesh = #dist.mesh<"dp=2">, plan.arena_bytes = array<i64: [[ARENA:[0-9]+]]>, plan.host_bytes = array<i64: 0>, plan.memory = {activations = 256 : i64, gradients = 256 : i64, host = 0 : i64, optimizer = 128 : i64, parameters = 320 : i64, workspace = {{[0-9]+}} : i64}, plan.persistent_bytes = array<i64: 704>}
// CHECK: onnx.param @w {{.*}}plan.program_offsets = array<i64: 0>
// CHECK: onnx.param @m {{.*}}plan.program_offsets = array<i64: 512>
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  onnx.param @w : tensor<64xf32> "parameter" {trainable = true}
  onnx.param @m : tensor<64xf32> "optimizer_state" {trainable = false, sharding = #dist.sharding<"[{dp}]">}
  onnx.param @sum : tensor<64xf32> "accumulator" {trainable = false, of = @w}
  plan.kernel @k(%a: tensor<64xf32>, %b: tensor<64xf32>) { plan.yield %a : tensor<64xf32> }

  // The update writes @w itself: its launch reads the old value at the same index. The constant has a place that lasts.
  // CHECK-LABEL: func.func @final
  // CHECK-SAME: plan.offset = [[X:[0-9]+]]
  // CHECK: %[[W:.*]] = onnx.read @w {plan.offsets = array<i64: 0>}
  // CHECK: plan.constant {plan.offsets = array<i64: 640>}
  // CHECK: %[[A:.*]] = plan.launch {{.*}}plan.offsets = array<i64: [[AT:[0-9]+]]>
  // CHECK: %[[B:.*]] = plan.launch {{.*}}plan.offsets = array<i64: [[AT]]>
  // CHECK: %[[U:.*]] = plan.launch @k(%[[W]], %[[B]]) {{.*}}plan.offsets = array<i64: 0>
  // CHECK: plan.store %[[U]], @w {in_place}
  func.func @final(%x: tensor<64xf32>) -> tensor<64xf32> {
    %w = onnx.read @w : tensor<64xf32>
    %c = plan.constant dense<[1.0, 2.0]> : tensor<2xf32> : tensor<2xf32>
    %a = plan.launch @k(%x, %w) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %b = plan.launch @k(%a, %w) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64: 0, 0>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %u = plan.launch @k(%w, %b) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64: 0, 0>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    plan.store %u, @w : tensor<64xf32>
    return %x : tensor<64xf32>
  }

  // The old value is read after the new one is made: a copy at the end.
  // CHECK-LABEL: func.func @late_reader
  // CHECK: plan.store %{{[0-9]+}}, @w : tensor<64xf32>
  func.func @late_reader(%x: tensor<64xf32>) -> tensor<64xf32> {
    %w = onnx.read @w : tensor<64xf32>
    %u = plan.launch @k(%w, %x) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64: 0, 0>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %y = plan.launch @k(%w, %x) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    plan.store %u, @w : tensor<64xf32>
    return %y : tensor<64xf32>
  }

  // The sum dies into what is made of it, also while that is reduced; zeros come after it.
  // CHECK-LABEL: func.func @last_of_a_sum
  // CHECK: %[[OLD:.*]] = onnx.read @sum {plan.offsets = array<i64: [[SUM:[0-9]+]]>}
  // CHECK: %[[G:.*]] = plan.launch {{.*}}plan.offsets = array<i64: [[GRADIENT:[0-9]+]]>
  // CHECK: %[[N:.*]] = plan.launch @k(%[[OLD]], %[[G]]) {{.*}}plan.offsets = array<i64: [[SUM]]>
  // CHECK: plan.collective %[[N]] {{.*}}plan.offsets = array<i64: [[SUM]]>
  // CHECK: plan.fill {plan.offsets = array<i64: [[SUM]]>}
  func.func @last_of_a_sum(%x: tensor<64xf32>) -> tensor<64xf32> {
    %old = onnx.read @sum : tensor<64xf32>
    %g = plan.launch @k(%x, %x) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %n = plan.launch @k(%old, %g) {plan.record = 1 : i64, extent = 64 : i64, grain = 1 : i64, inplace = array<i64: 0, 0, 1, 0>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %r = plan.collective %n {plan.stream = 1 : i64, plan.wait = array<i64: 1>, plan.record = 2 : i64, op = #dist.collective<all_reduce>, axes = ["dp"], reduce = #dist.reduction<sum>, dims = array<i64: -1>, split_dims = array<i64: -1>, why = "", sequence = 0 : i64} : (tensor<64xf32>) -> tensor<64xf32>
    %y = plan.launch @k(%r, %x) {plan.wait = array<i64: 2>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %zeros = plan.fill dense<0.0> : tensor<64xf32> : tensor<64xf32>
    plan.store %zeros, @sum : tensor<64xf32>
    return %y : tensor<64xf32>
  }

  // Nothing else lies in the sum where the zeros come first, or where it is read once more.
  // CHECK-LABEL: func.func @sum_that_stays
  // CHECK: onnx.read @sum {plan.offsets = array<i64: [[SUM:[0-9]+]]>}
  // CHECK-NOT: plan.launch {{.*}}plan.offsets = array<i64: [[SUM]]>
  // CHECK: plan.fill {plan.offsets = array<i64: [[SUM]]>}
  func.func @sum_that_stays(%x: tensor<64xf32>) -> tensor<64xf32> {
    %old = onnx.read @sum : tensor<64xf32>
    %n = plan.launch @k(%old, %x) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64: 0, 0>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %zeros = plan.fill dense<0.0> : tensor<64xf32> : tensor<64xf32>
    %y = plan.launch @k(%n, %x) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    plan.store %zeros, @sum : tensor<64xf32>
    return %y : tensor<64xf32>
  }
  // CHECK-LABEL: func.func @sum_read_again
  // CHECK: onnx.read @sum {plan.offsets = array<i64: [[SUM:[0-9]+]]>}
  // CHECK-NOT: plan.launch {{.*}}plan.offsets = array<i64: [[SUM]]>
  // CHECK: plan.fill {plan.offsets = array<i64: [[SUM]]>}
  func.func @sum_read_again(%x: tensor<64xf32>) -> tensor<64xf32> {
    %old = onnx.read @sum : tensor<64xf32>
    %n = plan.launch @k(%old, %x) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64: 0, 0>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %y = plan.launch @k(%n, %old) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %zeros = plan.fill dense<0.0> : tensor<64xf32> : tensor<64xf32>
    plan.store %zeros, @sum : tensor<64xf32>
    return %y : tensor<64xf32>
  }

  // Only one of two dying operands can give its buffer to the result.
  // CHECK-LABEL: func.func @two_operands
  // CHECK: plan.launch {{.*}}plan.offsets = array<i64: [[Q:[0-9]+]]>
  // CHECK-NOT: plan.launch {{.*}}plan.offsets = array<i64: [[Q]]>
  // CHECK: plan.launch
  // CHECK: plan.launch {{.*}}plan.offsets = array<i64: [[Q]]>
  func.func @two_operands(%x: tensor<64xf32>) -> tensor<64xf32> {
    %a = plan.launch @k(%x, %x) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %b = plan.launch @k(%x, %x) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %c = plan.launch @k(%a, %b) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64: 0, 0, 1, 0>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    return %c : tensor<64xf32>
  }

  // Parts are written where the concatenation has them.
  // CHECK-LABEL: func.func @concat
  // CHECK: plan.launch {{.*}}plan.offsets = array<i64: [[P:[0-9]+]]>
  // CHECK: plan.concat {{.*}}plan.offsets = array<i64: [[P]]>
  func.func @concat(%x: tensor<64xf32>) -> tensor<128xf32> {
    %a = plan.launch @k(%x, %x) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %c = plan.concat %a, %x {axis = 0 : i64} : (tensor<64xf32>, tensor<64xf32>) -> tensor<128xf32>
    return %c : tensor<128xf32>
  }

  // While the collective runs beside the second launch, neither of its buffers is reused; the all-reduce works in place.
  // CHECK-LABEL: func.func @overlap
  // CHECK: plan.launch {{.*}}plan.offsets = array<i64: [[G:[0-9]+]]>
  // CHECK: plan.collective {{.*}}plan.offsets = array<i64: [[G]]>
  // CHECK-NOT: plan.launch {{.*}}plan.offsets = array<i64: [[G]]>
  // CHECK: plan.launch
  func.func @overlap(%x: tensor<64xf32>) -> tensor<64xf32> {
    %g = plan.launch @k(%x, %x) {plan.record = 1 : i64, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %r = plan.collective %g {plan.stream = 1 : i64, plan.wait = array<i64: 1>, plan.record = 2 : i64, op = #dist.collective<all_reduce>, axes = ["dp"], reduce = #dist.reduction<sum>, dims = array<i64: -1>, split_dims = array<i64: -1>, why = "", sequence = 0 : i64} : (tensor<64xf32>) -> tensor<64xf32>
    %a = plan.launch @k(%x, %x) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %b = plan.launch @k(%a, %r) {plan.wait = array<i64: 2>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    return %b : tensor<64xf32>
  }
}
