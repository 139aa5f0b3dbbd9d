// RUN: cleave-opt %s --offload-state --schedule-commands --plan-memory --verify-plan | FileCheck %s

// The optimizer's state lies in the host's memory. Two updates' state is on the device at a time: the third is fetched
// beside the second update, which waits until the first one's state has left, and lies where that was. A parameter's
// state that is smaller than a page stays on the device; two states of it are a page together, and are fetched once for
// all that read them.
// CHECK: plan.host_bytes = array<i64: 3150848>
// CHECK: onnx.param @m0 {{.*}}plan.on_host, plan.program_offsets = array<i64: 1152921504606846976>
// CHECK-NOT: onnx.param @small {{.*}}plan.on_host
// CHECK: onnx.param @a {{.*}}plan.on_host
// CHECK-LABEL: func.func @final
// CHECK: %[[F0:.*]] = plan.copy {{.*}}plan.link = "fetch", plan.offsets = array<i64: [[A:.*]]>, plan.record = [[E0:.*]] : i64, plan.stream = 3 : i64
// CHECK: %[[U0:.*]]:2 = plan.launch @sgd({{.*}}, %[[F0]]) {{.*}}name = "update 0", {{.*}}plan.offsets = array<i64: {{.*}}, [[A]]>, plan.record = [[D0:.*]] : i64, plan.wait = array<i64: [[E0]]>
// CHECK: %[[F1:.*]] = plan.copy {{.*}}plan.link = "fetch", {{.*}}plan.stream = 3 : i64, plan.wait = array<i64: [[D0]]>
// CHECK: %[[V0:.*]] = plan.copy %[[U0]]#1 {{.*}}plan.link = "evict", {{.*}}plan.record = [[L0:.*]] : i64, plan.stream = 4 : i64, plan.wait = array<i64: [[D0]]>
// CHECK: plan.launch @sgd({{.*}}, %[[F1]]) {{.*}}name = "update 1", {{.*}}plan.wait = array<i64: {{.*}}[[L0]]
// CHECK: plan.copy {{.*}}plan.link = "fetch", plan.offsets = array<i64: [[A]]>
// CHECK: name = "update 2"
// CHECK: plan.store %[[V0]], @m0 {in_place}
// CHECK-LABEL: func.func @other
// CHECK: plan.launch @twice(%[[A1:[^,]*]], %[[A1]], %{{[^,]*}})
module attributes {plan.offload = ["optimizer"]} {
  onnx.param @w0 : tensor<262144xf32> "parameter" {trainable = true}
  onnx.param @w1 : tensor<262144xf32> "parameter" {trainable = true}
  onnx.param @w2 : tensor<262144xf32> "parameter" {trainable = true}
  onnx.param @m0 : tensor<262144xf32> "optimizer_state" {fill = 0.0, trainable = false}
  onnx.param @m1 : tensor<262144xf32> "optimizer_state" {fill = 0.0, trainable = false}
  onnx.param @m2 : tensor<262144xf32> "optimizer_state" {fill = 0.0, trainable = false}
  onnx.param @small : tensor<64xf32> "optimizer_state" {fill = 0.0, trainable = false}
  onnx.param @p : tensor<640xf32> "parameter" {trainable = true}
  onnx.param @a : tensor<640xf32> "optimizer_state" {of = @p, fill = 0.0, trainable = false}
  onnx.param @b : tensor<640xf32> "optimizer_state" {of = @p, fill = 0.0, trainable = false}
  plan.kernel @sgd(%w: tensor<262144xf32>, %m: tensor<262144xf32>) { plan.yield %w, %m : tensor<262144xf32>, tensor<262144xf32> }
  plan.kernel @twice(%a: tensor<640xf32>, %again: tensor<640xf32>, %b: tensor<640xf32>) { plan.yield %a, %b : tensor<640xf32>, tensor<640xf32> }
  plan.kernel @step(%m: tensor<64xf32>) { plan.yield %m : tensor<64xf32> }
  func.func @final(%x: tensor<64xf32>) {
    %small = onnx.read @small : tensor<64xf32>
    %t = plan.launch @step(%small) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64: 0, 0>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>) -> tensor<64xf32>
    plan.store %t, @small : tensor<64xf32>
    %w0 = onnx.read @w0 : tensor<262144xf32>
    %m0 = onnx.read @m0 : tensor<262144xf32>
    %a:2 = plan.launch @sgd(%w0, %m0) {name = "update 0", extent = 262144 : i64, grain = 1 : i64, inplace = array<i64: 0, 0, 1, 1>, scalars = [], place.at = #place.at<phase = update>} : (tensor<262144xf32>, tensor<262144xf32>) -> (tensor<262144xf32>, tensor<262144xf32>)
    plan.store %a#0, @w0 : tensor<262144xf32>
    plan.store %a#1, @m0 : tensor<262144xf32>
    %w1 = onnx.read @w1 : tensor<262144xf32>
    %m1 = onnx.read @m1 : tensor<262144xf32>
    %b:2 = plan.launch @sgd(%w1, %m1) {name = "update 1", extent = 262144 : i64, grain = 1 : i64, inplace = array<i64: 0, 0, 1, 1>, scalars = [], place.at = #place.at<phase = update>} : (tensor<262144xf32>, tensor<262144xf32>) -> (tensor<262144xf32>, tensor<262144xf32>)
    plan.store %b#0, @w1 : tensor<262144xf32>
    plan.store %b#1, @m1 : tensor<262144xf32>
    %w2 = onnx.read @w2 : tensor<262144xf32>
    %m2 = onnx.read @m2 : tensor<262144xf32>
    %c:2 = plan.launch @sgd(%w2, %m2) {name = "update 2", extent = 262144 : i64, grain = 1 : i64, inplace = array<i64: 0, 0, 1, 1>, scalars = [], place.at = #place.at<phase = update>} : (tensor<262144xf32>, tensor<262144xf32>) -> (tensor<262144xf32>, tensor<262144xf32>)
    plan.store %c#0, @w2 : tensor<262144xf32>
    plan.store %c#1, @m2 : tensor<262144xf32>
    return
  }
  func.func @other() {
    %a1 = onnx.read @a : tensor<640xf32>
    %a2 = onnx.read @a : tensor<640xf32>
    %b1 = onnx.read @b : tensor<640xf32>
    %ab:2 = plan.launch @twice(%a1, %a2, %b1) {extent = 640 : i64, grain = 1 : i64, inplace = array<i64: 0, 0, 2, 1>, scalars = [], place.at = #place.at<phase = update>} : (tensor<640xf32>, tensor<640xf32>, tensor<640xf32>) -> (tensor<640xf32>, tensor<640xf32>)
    plan.store %ab#0, @a : tensor<640xf32>
    plan.store %ab#1, @b : tensor<640xf32>
    return
  }
}
