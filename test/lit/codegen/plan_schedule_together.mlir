// RUN: cleave-opt %s --lower-collectives --schedule-commands=gpu=true | FileCheck %s

onnx.param @w : tensor<64xf32> "parameter" {trainable = true}
onnx.param @v : tensor<64xf32> "parameter" {trainable = true}
plan.kernel @k(%a: tensor<64xf32>, %b: tensor<64xf32>) { plan.yield %a : tensor<64xf32> }
plan.kernel @low(%a: tensor<64xf32>) {
  %c = onnx.Cast %a {to = bf16} : (tensor<64xf32>) -> tensor<64xbf16>
  plan.yield %c : tensor<64xbf16>
}
plan.kernel @use(%a: tensor<64xf32>, %b: tensor<64xbf16>) { plan.yield %a : tensor<64xf32> }
plan.kernel @squares(%a: tensor<64xf32>) {
  %c = onnx.Constant dense<1.0> : tensor<8xf32>
  plan.yield %c : tensor<8xf32>
}
plan.kernel @sum(%a: tensor<8xf32>) {
  %c = onnx.Constant dense<1.0> : tensor<f32>
  plan.yield %c : tensor<f32>
}
plan.kernel @norm(%a: tensor<f32>, %b: tensor<f32>) { plan.yield %a : tensor<f32> }
plan.kernel @step(%a: tensor<64xf32>, %b: tensor<64xf32>, %c: tensor<f32>) { plan.yield %a : tensor<64xf32> }

// What GPUs launch together stands side by side: parameters that are rounded, before the first of them is needed, and
// what a norm of several gradients is made of, after all of them. Each step waits for the norm.
// CHECK-LABEL: func.func @final
// CHECK: name = "round w"
// CHECK: name = "round v"
// CHECK: name = "grad of v"
// CHECK: name = "grad of w"
// CHECK: name = "squares of v"
// CHECK: name = "squares of w"
// CHECK: name = "sum of v"
// CHECK: name = "sum of w"
// CHECK: name = "norm"
// CHECK: name = "step w"
// CHECK: name = "step v"
func.func @final(%x: tensor<64xf32>) {
  %w = onnx.read @w : tensor<64xf32>
  %v = onnx.read @v : tensor<64xf32>
  %lw = plan.launch @low(%w) {name = "round w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>) -> tensor<64xbf16>
  %y = plan.launch @use(%x, %lw) {name = "made", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xbf16>) -> tensor<64xf32>
  %lv = plan.launch @low(%v) {name = "round v", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>) -> tensor<64xbf16>
  %gv = plan.launch @use(%y, %lv) {name = "grad of v", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xbf16>) -> tensor<64xf32>
  %gw = plan.launch @k(%gv, %y) {name = "grad of w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %qv = plan.launch @squares(%gv) {name = "squares of v", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>) -> tensor<8xf32>
  %nv = plan.launch @sum(%qv) {name = "sum of v", extent = 1 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<8xf32>) -> tensor<f32>
  %qw = plan.launch @squares(%gw) {name = "squares of w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>) -> tensor<8xf32>
  %nw = plan.launch @sum(%qw) {name = "sum of w", extent = 1 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<8xf32>) -> tensor<f32>
  %n = plan.launch @norm(%nv, %nw) {name = "norm", extent = 1 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<f32>, tensor<f32>) -> tensor<f32>
  %sw = plan.launch @step(%w, %gw, %n) {name = "step w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %sv = plan.launch @step(%v, %gv, %n) {name = "step v", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  plan.store %sw, @w : tensor<64xf32>
  plan.store %sv, @v : tensor<64xf32>
  return
}
