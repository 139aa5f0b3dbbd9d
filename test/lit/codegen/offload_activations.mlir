// RUN: cleave-opt %s --offload-activations --schedule-commands --plan-memory --verify-plan | FileCheck %s

// What the forward pass keeps leaves after it is made and comes back before the backward pass reads it, through a view too.
// %c is wanted again at once, and %p is made from parameters alone: they stay.
// CHECK: plan.arena_bytes = array<i64: [[ARENA:[0-9]+]]>, plan.host_bytes = array<i64: 8192>
// CHECK-LABEL: func.func @final
// CHECK: %[[A:.*]] = plan.launch @k({{.*}}name = "a"{{.*}}plan.record = [[MA:.*]] : i64
// CHECK: %[[HA:.*]] = plan.copy %[[A]] {{.*}}plan.link = "evict", plan.offsets = array<i64: {{1152921504606.*}}>, plan.record = [[EA:.*]] : i64, plan.stream = 4 : i64, plan.wait = array<i64: [[MA]]>
// CHECK: %[[B:.*]] = plan.launch @k({{.*}}name = "b"
// CHECK: %[[HB:.*]] = plan.copy %[[B]] {{.*}}plan.link = "evict"
// CHECK-NOT: "evict"
// CHECK: name = "c"
// CHECK-NOT: "evict"
// CHECK: %[[FB:.*]] = plan.copy %[[HB]] {{.*}}plan.link = "fetch", {{.*}}plan.stream = 3 : i64
// CHECK: plan.launch @k({{.*}}%[[FB]]) {{.*}}name = "gb"
// CHECK: %[[VA:.*]] = plan.view
// CHECK: plan.launch @k({{.*}}%[[VA]]) {{.*}}name = "ga"
module attributes {plan.offload = ["activations"]} {
  onnx.param @w : tensor<1024xf32> "parameter" {trainable = true}
  plan.kernel @k(%x: tensor<1024xf32>, %y: tensor<1024xf32>) { plan.yield %x : tensor<1024xf32> }
  func.func @final(%x: tensor<1024xf32>) -> tensor<1024xf32> {
    %w = onnx.read @w : tensor<1024xf32>
    %p = plan.launch @k(%w, %w) {name = "p", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = forward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %a = plan.launch @k(%x, %p) {name = "a", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = forward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %va = plan.view %a : (tensor<1024xf32>) -> tensor<1024xf32>
    %b = plan.launch @k(%a, %w) {name = "b", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = forward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %c = plan.launch @k(%b, %w) {name = "c", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = forward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %gc = plan.launch @k(%c, %p) {name = "gc", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %gb = plan.launch @k(%gc, %b) {name = "gb", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %ga = plan.launch @k(%gb, %va) {name = "ga", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %g1 = plan.launch @k(%ga, %w) {name = "g1", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %g2 = plan.launch @k(%g1, %w) {name = "g2", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    return %g2 : tensor<1024xf32>
  }
  // %a is made by a kernel that prepares the backward pass beside (its phase says so), which prepares more from it at
  // once, and a running statistic reads it: it leaves nevertheless. The backward pass begins with its first product.
  // CHECK-LABEL: func.func @prepared
  // CHECK: %[[A:.*]] = plan.launch @k({{.*}}name = "a, prepared"
  // CHECK: %[[H:.*]] = plan.copy %[[A]] {{.*}}plan.link = "evict"
  // CHECK: %[[F:.*]] = plan.copy %[[H]] {{.*}}plan.link = "fetch"
  // CHECK: plan.launch @k({{.*}}%[[F]]) {{.*}}name = "ga"
  func.func @prepared(%x: tensor<1024xf32>) -> (tensor<1024xf32>, tensor<1024xf32>) {
    %a = plan.launch @k(%x, %x) {name = "a, prepared", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %m = plan.launch @k(%a, %x) {name = "mask", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %b = plan.launch @k(%a, %m) {name = "b", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = forward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %c = plan.launch @k(%b, %b) {name = "c", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = forward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %p = plan.contract %c, %c {batch = array<i64>, m = 32 : i64, n = 32 : i64, k = 32 : i64, lhs_strides = array<i64: 32, 1>, rhs_strides = array<i64: 32, 1>, out_strides = array<i64: 32, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, place.at = #place.at<phase = backward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %ga = plan.launch @k(%p, %a) {name = "ga", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    %s = plan.launch @k(%a, %x) {name = "statistic", extent = 1024 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<1024xf32>, tensor<1024xf32>) -> tensor<1024xf32>
    return %ga, %s : tensor<1024xf32>, tensor<1024xf32>
  }
}
