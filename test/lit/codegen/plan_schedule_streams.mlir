// RUN: cleave-opt %s --lower-collectives --schedule-commands="gpu=true" | FileCheck %s
// RUN: cleave-opt %s --lower-collectives --schedule-commands | FileCheck %s --check-prefix=CPU

// On a GPU every mesh axis has a stream: a gather of weights over dp is not in the way of the sums over tp. What several
// axes share goes with the outermost, and what stages share with their sends. On a CPU a stream is a thread: one for all.
module attributes {dist.mesh = #dist.mesh<"pp=2,dp=2,tp=4">} {
onnx.param @s : tensor<64xf32> "parameter" {trainable = true}
plan.kernel @k(%a: tensor<64xf32>, %b: tensor<64xf32>) { plan.yield %a : tensor<64xf32> }
plan.kernel @wide(%a: tensor<64xf32>, %b: tensor<128xf32>) { plan.yield %a : tensor<64xf32> }

// CHECK-LABEL: func.func @step
// CHECK: %[[G:.*]] = plan.collective {{.*}}axes = ["dp"]{{.*}}plan.record = [[GATHERED:.*]] : i64, plan.stream = 6 : i64
// CHECK: %[[P:.*]] = plan.launch @k{{.*}}plan.record = [[PART:.*]] : i64
// CHECK: %[[T:.*]] = plan.collective %[[P]] {{.*}}axes = ["tp"]{{.*}}plan.record = [[SUM:.*]] : i64, plan.stream = 7 : i64, plan.wait = array<i64: [[PART]]>
// CHECK: plan.launch @wide(%[[T]], %[[G]]) {{.*}}plan.record = [[WIDE:.*]] : i64, plan.wait = array<i64: [[SUM]], [[GATHERED]]>
// CHECK: %[[B:.*]] = plan.collective {{.*}}axes = ["tp", "dp"]{{.*}}plan.record = [[BOTH:.*]] : i64, plan.stream = 6 : i64, plan.wait = array<i64: [[WIDE]]>
// CHECK: plan.collective %[[B]] {{.*}}axes = ["dp", "pp"]{{.*}}plan.stream = 1 : i64, plan.wait = array<i64: [[WIDE]], [[BOTH]]>
// CPU-LABEL: func.func @step
// CPU-COUNT-4: plan.stream = 1 : i64
// CPU-NOT: plan.stream
func.func @step(%x: tensor<64xf32>) -> tensor<64xf32> {
  %s = onnx.read @s : tensor<64xf32>
  %g = dist.all_gather %s {axes = ["dp"], dim = 0 : i64} : (tensor<64xf32>) -> tensor<128xf32>
  %p = plan.launch @k(%x, %x) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %t = dist.all_reduce %p {axes = ["tp"], reduce = #dist.reduction<sum>} : (tensor<64xf32>) -> tensor<64xf32>
  %w = plan.launch @wide(%t, %g) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<128xf32>) -> tensor<64xf32>
  %b = dist.all_reduce %w {axes = ["tp", "dp"], reduce = #dist.reduction<sum>} : (tensor<64xf32>) -> tensor<64xf32>
  %n = dist.all_reduce %b {axes = ["dp", "pp"], reduce = #dist.reduction<max>} : (tensor<64xf32>) -> tensor<64xf32>
  return %n : tensor<64xf32>
}
}
