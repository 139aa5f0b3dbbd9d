// RUN: cleave-opt %s --offload-activations --schedule-commands --plan-memory --verify-plan | FileCheck %s

// What a stage's forward pass keeps for its backward pass has slots in the host's memory, three here: both halves of the
// backward pass bring it back. It is kept in another shape than it is made in and read in. What was received stays, and so does what the first half keeps for the
// second.
// CHECK: plan.host_bytes = array<i64: 0, 12288>
// CHECK-LABEL: func.func @forward.1
// CHECK-SAME: plan.slot_region = array<i64: {{[0-9]+}}, 8192, 3, 0, 1152921504606846976, 4096>
// CHECK: %[[X:.*]] = plan.receive
// CHECK: %[[A:.*]] = plan.launch @k({{.*}}name = "a"
// CHECK: %[[S:.*]] = plan.view %[[A]]
// CHECK: %[[H:.*]] = plan.copy %[[S]] {{.*}}plan.link = "evict", plan.offsets = array<i64: 1152921504606846976>
// CHECK: return %[[X]], %[[H]]
// CHECK-LABEL: func.func @backward_input.1(
// CHECK-SAME: %[[HERE:[a-z0-9]+]]: tensor<32x32xf32> {place.kept = 2 : i64, plan.offset = 1152921504606846976 : i64}
// CHECK: %[[F:.*]] = plan.copy %[[HERE]] {{.*}}plan.link = "fetch"{{.*}}plan.stream = 3 : i64
// CHECK: %[[W:.*]] = plan.view %[[F]]
// CHECK: plan.launch @k(%[[W]], {{.*}}name = "dx"
// CHECK-NOT: "evict"
// CHECK-LABEL: func.func @backward_weight.1(
// CHECK-SAME: %[[AGAIN:[a-z0-9]+]]: tensor<32x32xf32> {place.kept = 2 : i64
// CHECK: %[[G:.*]] = plan.copy %[[AGAIN]] {{.*}}plan.link = "fetch"
// CHECK: %[[V:.*]] = plan.view %[[G]]
// CHECK: plan.launch @k(%[[V]], {{.*}}name = "dw"
module attributes {plan.offload = ["activations"], dist.mesh = #dist.mesh<"pp=2">} {
  plan.kernel @k(%x: tensor<1024xf32>, %y: tensor<1024xf32>) { plan.yield %x : tensor<1024xf32> }
  func.func @forward.1() -> (tensor<1024xf32> {place.kept = 1 : i64}, tensor<32x32xf32> {place.kept = 2 : i64}) attributes {place.program = 1 : i64, place.region = "step.1", place.slots = 3 : i64} {
    %x = plan.receive {peer = #plan.affine<base = 0, axes = [], strides = []>, tag = 0 : i64, why = "", channel = 0 : i64, place.at = #place.at<phase = forward>} : tensor<1024xf32>
    %a = plan.launch @k(%x, %x) {name = "a", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = forward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %s = plan.view %a : (tensor<1024xf32>) -> tensor<32x32xf32>
    return %x, %s : tensor<1024xf32>, tensor<32x32xf32>
  }
  func.func @backward_input.1(%a: tensor<32x32xf32> {place.kept = 2 : i64}) -> (tensor<1024xf32> {place.kept = 3 : i64}) attributes {place.program = 1 : i64, place.region = "step.1", place.slots = 3 : i64} {
    %v = plan.view %a : (tensor<32x32xf32>) -> tensor<1024xf32>
    %d = plan.launch @k(%v, %v) {name = "dx", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    return %d : tensor<1024xf32>
  }
  func.func @backward_weight.1(%x: tensor<1024xf32> {place.kept = 1 : i64}, %a: tensor<32x32xf32> {place.kept = 2 : i64}, %d: tensor<1024xf32> {place.kept = 3 : i64}) -> tensor<1024xf32> attributes {place.program = 1 : i64, place.region = "step.1", place.slots = 3 : i64} {
    %v = plan.view %a : (tensor<32x32xf32>) -> tensor<1024xf32>
    %w = plan.launch @k(%v, %d) {name = "dw", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %y = plan.launch @k(%w, %x) {name = "dy", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    return %y : tensor<1024xf32>
  }
}
