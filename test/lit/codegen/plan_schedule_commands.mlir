// RUN: cleave-opt %s --lower-collectives --schedule-commands | FileCheck %s

onnx.param @w : tensor<64xf32> "parameter" {trainable = true}
onnx.param @v : tensor<64xf32> "parameter" {trainable = true}
onnx.param @s0 : tensor<1048576xf32> "parameter" {trainable = true}
onnx.param @s1 : tensor<1048576xf32> "parameter" {trainable = true}
onnx.param @s2 : tensor<1048576xf32> "parameter" {trainable = true}
plan.kernel @k(%a: tensor<64xf32>, %b: tensor<64xf32>) { plan.yield %a : tensor<64xf32> }
plan.kernel @copy(%a: tensor<64xf32>) { plan.yield %a : tensor<64xf32> }
plan.kernel @sum_of_two(%a: tensor<8x8xf32>, %b: tensor<8x8xf32>) { plan.yield %a : tensor<8x8xf32> }
plan.kernel @flag(%a: tensor<64xf32>, %b: tensor<64xf32>) {
  %c = onnx.Constant dense<1.0> : tensor<f32>
  plan.yield %c : tensor<f32>
}
plan.kernel @both(%a: tensor<64xf32>, %b: tensor<64xf32>) {
  %c = onnx.Constant dense<true> : tensor<i1>
  plan.yield %a, %c : tensor<64xf32>, tensor<i1>
}
plan.kernel @choose(%a: tensor<64xf32>, %b: tensor<64xf32>, %c: tensor<i1>) { plan.yield %a : tensor<64xf32> }
plan.kernel @take(%a: tensor<64xf32>, %b: tensor<64xf32>, %c: tensor<f32>) { plan.yield %a : tensor<64xf32> }
plan.kernel @three(%a: tensor<64xf32>, %b: tensor<64xf32>, %c: tensor<64xf32>) { plan.yield %a : tensor<64xf32> }
plan.kernel @big(%a: tensor<64xf32>, %b: tensor<2097152xf32>) { plan.yield %a : tensor<64xf32> }

// The first gradient is reduced while the second is computed; its update waits until the second reduction has started.
// The update of @w comes after the last backward reader of @w, and stores stand at the end.
// CHECK-LABEL: func.func @final
// CHECK: %[[GV:.*]] = plan.launch @k({{.*}} {{.*}}name = "grad of v"{{.*}}plan.record = [[E1:.*]] : i64
// CHECK: %[[RV:.*]] = plan.collective %[[GV]] {{.*}}plan.record = [[E2:.*]] : i64, plan.stream = 1 : i64, plan.wait = array<i64: [[E1]]>, {{.*}}sequence = 0 : i64
// CHECK: %[[GW:.*]] = plan.launch @k({{.*}}name = "grad of w"{{.*}}plan.record = [[E3:.*]] : i64
// CHECK: %[[RW:.*]] = plan.collective %[[GW]] {{.*}}plan.wait = array<i64: [[E3]]>, {{.*}}sequence = 1 : i64
// CHECK: %[[UV:.*]] = plan.launch @k(%{{.*}}, %[[RV]]) {{.*}}name = "update v"{{.*}}plan.wait = array<i64: [[E2]]>
// CHECK: name = "update w"
// CHECK: plan.store %[[UV]], @v
// CHECK: plan.store %{{.*}}, @w
func.func @final(%x: tensor<64xf32>) -> tensor<64xf32> {
  %w = onnx.read @w : tensor<64xf32>
  %v = onnx.read @v : tensor<64xf32>
  %fill = plan.fill dense<1.0> : tensor<64xf32> : tensor<64xf32>
  %y = plan.launch @k(%x, %w) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = forward>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %gv = plan.launch @k(%y, %y) {name = "grad of v", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %rv = dist.all_reduce %gv {axes = ["dp"], reduce = #dist.reduction<sum>, place.at = #place.at<phase = backward>} : (tensor<64xf32>) -> tensor<64xf32>
  %uv = plan.launch @k(%v, %rv) {name = "update v", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  plan.store %uv, @v : tensor<64xf32>
  %gw = plan.launch @k(%gv, %w) {name = "grad of w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %rw = dist.all_reduce %gw {axes = ["dp"], reduce = #dist.reduction<sum>, place.at = #place.at<phase = backward>} : (tensor<64xf32>) -> tensor<64xf32>
  %uw = plan.launch @k(%fill, %rw) {name = "update w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  plan.store %uw, @w : tensor<64xf32>
  return %y : tensor<64xf32>
}

// Half a backward pass: gradients are made of what was kept. Each is added to its sum before the next one is made.
// CHECK-LABEL: func.func @weights
// CHECK: name = "grad of w"
// CHECK: name = "add to w"
// CHECK: name = "grad of v"
// CHECK: name = "add to v"
func.func @weights(%x: tensor<64xf32>, %dy: tensor<64xf32>) {
  %gv = plan.launch @k(%x, %dy) {name = "grad of v", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %gw = plan.launch @k(%dy, %x) {name = "grad of w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %w = onnx.read @w : tensor<64xf32>
  %uw = plan.launch @k(%w, %gw) {name = "add to w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  plan.store %uw, @w : tensor<64xf32>
  %v = onnx.read @v : tensor<64xf32>
  %uv = plan.launch @k(%v, %gv) {name = "add to v", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  plan.store %uv, @v : tensor<64xf32>
  return
}

// A number that both updates wait for makes them ready together: one goes to its end before the other begins.
// CHECK-LABEL: func.func @in_turn
// CHECK: name = "norm"
// CHECK: name = "scale w"
// CHECK: name = "step w"
// CHECK: name = "scale v"
// CHECK: name = "step v"
func.func @in_turn(%gw: tensor<64xf32>, %gv: tensor<64xf32>) {
  %w = onnx.read @w : tensor<64xf32>
  %v = onnx.read @v : tensor<64xf32>
  %norm = plan.launch @k(%gw, %gv) {name = "norm", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %sw = plan.launch @k(%gw, %norm) {name = "scale w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %sv = plan.launch @k(%gv, %norm) {name = "scale v", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %uw = plan.launch @k(%w, %sw) {name = "step w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %uv = plan.launch @k(%v, %sv) {name = "step v", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  plan.store %uw, @w : tensor<64xf32>
  plan.store %uv, @v : tensor<64xf32>
  return
}

// A number of both gradients decides over both updates: none of their parts begins before it is there, but for what it
// is made of.
// CHECK-LABEL: func.func @decided
// CHECK: name = "mean w"
// CHECK: name = "mean v"
// CHECK: name = "is finite"
// CHECK: name = "step w"
// CHECK: name = "take w"
// CHECK: name = "step v"
// CHECK: name = "take v"
func.func @decided(%gw: tensor<64xf32>, %gv: tensor<64xf32>) {
  %w = onnx.read @w : tensor<64xf32>
  %v = onnx.read @v : tensor<64xf32>
  %y = plan.launch @k(%gw, %gv) {name = "made", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %mw = plan.launch @k(%gw, %y) {name = "mean w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %sw = plan.launch @k(%mw, %y) {name = "step w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %mv = plan.launch @k(%gv, %y) {name = "mean v", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %sv = plan.launch @k(%mv, %y) {name = "step v", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %f = plan.launch @flag(%mw, %mv) {name = "is finite", extent = 1 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<f32>
  %tw = plan.launch @take(%w, %sw, %f) {name = "take w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %tv = plan.launch @take(%v, %sv, %f) {name = "take v", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  plan.store %tw, @w : tensor<64xf32>
  plan.store %tv, @v : tensor<64xf32>
  return
}

// Likewise where the number's kernel makes a gradient besides.
// CHECK-LABEL: func.func @decided_beside
// CHECK: name = "mean w"
// CHECK: name = "mean v and is finite"
// CHECK: name = "step w"
// CHECK: name = "take w"
// CHECK: name = "take v"
func.func @decided_beside(%gw: tensor<64xf32>, %gv: tensor<64xf32>) {
  %w = onnx.read @w : tensor<64xf32>
  %v = onnx.read @v : tensor<64xf32>
  %y = plan.launch @k(%gw, %gv) {name = "made", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %mw = plan.launch @k(%gw, %y) {name = "mean w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %sw = plan.launch @k(%mw, %y) {name = "step w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %vf:2 = plan.launch @both(%gv, %mw) {name = "mean v and is finite", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> (tensor<64xf32>, tensor<i1>)
  %tw = plan.launch @choose(%w, %sw, %vf#1) {name = "take w", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>, tensor<i1>) -> tensor<64xf32>
  %tv = plan.launch @choose(%v, %vf#0, %vf#1) {name = "take v", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>, tensor<i1>) -> tensor<64xf32>
  plan.store %tw, @w : tensor<64xf32>
  plan.store %tv, @v : tensor<64xf32>
  return
}

// What overwrites a state comes after the update that still reads it; of two that read what the other overwrites, what is
// stored second comes first.
// CHECK-LABEL: func.func @overwritten
// CHECK: name = "step"
// CHECK: name = "average"
// CHECK: name = "right"
// CHECK: name = "left"
func.func @overwritten(%g: tensor<64xf32>, %h: tensor<64xf32>) {
  %w = onnx.read @w : tensor<64xf32>
  %m = onnx.read @m : tensor<64xf32>
  %a = onnx.read @a : tensor<64xf32>
  %b = onnx.read @b : tensor<64xf32>
  %y = plan.launch @k(%g, %h) {name = "made", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %d = plan.launch @k(%y, %h) {name = "gradient", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %average = plan.launch @k(%m, %d) {name = "average", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %step = plan.launch @three(%w, %m, %d) {name = "step", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %left = plan.launch @three(%a, %b, %d) {name = "left", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %right = plan.launch @three(%b, %a, %d) {name = "right", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = update>} : (tensor<64xf32>, tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  plan.store %average, @m : tensor<64xf32>
  plan.store %step, @w : tensor<64xf32>
  plan.store %left, @a : tensor<64xf32>
  plan.store %right, @b : tensor<64xf32>
  return
}

// Terms of a sum are added when the last of them is there, and do not wait for what stands in between.
// CHECK-LABEL: func.func @terms
// CHECK-COUNT-3: plan.contract
// CHECK: plan.launch @sum_of_two
// CHECK: plan.contract
func.func @terms(%x: tensor<8x8xf32>) -> (tensor<8x8xf32> {onnx.name = "z"}, tensor<8x8xf32> {onnx.name = "s"}) {
  %y = plan.contract %x, %x {batch = array<i64>, place.at = #place.at<phase = backward>, k = 8 : i64, lhs_strides = array<i64: 8, 1>, m = 8 : i64, n = 8 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, out_strides = array<i64: 8, 1>, rhs_strides = array<i64: 8, 1>} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %a = plan.contract %y, %x {batch = array<i64>, place.at = #place.at<phase = backward>, k = 8 : i64, lhs_strides = array<i64: 8, 1>, m = 8 : i64, n = 8 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, out_strides = array<i64: 8, 1>, rhs_strides = array<i64: 8, 1>} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %b = plan.contract %y, %y {batch = array<i64>, place.at = #place.at<phase = backward>, k = 8 : i64, lhs_strides = array<i64: 8, 1>, m = 8 : i64, n = 8 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, out_strides = array<i64: 8, 1>, rhs_strides = array<i64: 8, 1>} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %z = plan.contract %y, %y {batch = array<i64>, place.at = #place.at<phase = backward>, k = 8 : i64, lhs_strides = array<i64: 8, 1>, m = 8 : i64, n = 8 : i64, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>, out_strides = array<i64: 8, 1>, rhs_strides = array<i64: 8, 1>} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  %s = plan.launch @sum_of_two(%a, %b) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = [], place.at = #place.at<phase = backward>} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
  return %z, %s : tensor<8x8xf32>, tensor<8x8xf32>
}

// Parameters gathered for use (ZeRO-3): each gather is issued when the one before it is first used.
// CHECK-LABEL: func.func @gathered
// CHECK: %[[G0:.*]] = plan.collective
// CHECK: %[[G1:.*]] = plan.collective
// CHECK: plan.launch @big(%{{.*}}, %[[G0]]) {{.*}}plan.record = [[E:.*]] : i64, plan.wait = array<i64: 1>
// CHECK: %[[G2:.*]] = plan.collective {{.*}}plan.wait = array<i64: [[E]]>
// CHECK: plan.launch @big(%{{.*}}, %[[G1]])
// CHECK: plan.launch @big(%{{.*}}, %[[G2]])
func.func @gathered(%x: tensor<64xf32>) -> tensor<64xf32> {
  %s0 = onnx.read @s0 : tensor<1048576xf32>
  %s1 = onnx.read @s1 : tensor<1048576xf32>
  %s2 = onnx.read @s2 : tensor<1048576xf32>
  %g0 = dist.all_gather %s0 {axes = ["dp"], dim = 0 : i64} : (tensor<1048576xf32>) -> tensor<2097152xf32>
  %a = plan.launch @big(%x, %g0) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<2097152xf32>) -> tensor<64xf32>
  %g1 = dist.all_gather %s1 {axes = ["dp"], dim = 0 : i64} : (tensor<1048576xf32>) -> tensor<2097152xf32>
  %b = plan.launch @big(%a, %g1) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<2097152xf32>) -> tensor<64xf32>
  %g2 = dist.all_gather %s2 {axes = ["dp"], dim = 0 : i64} : (tensor<1048576xf32>) -> tensor<2097152xf32>
  %c = plan.launch @big(%b, %g2) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<2097152xf32>) -> tensor<64xf32>
  return %c : tensor<64xf32>
}

// A ring: a block is asked for one turn ahead, when the turn before has its own, and not all of them at once.
// CHECK-LABEL: func.func @ring
// CHECK: plan.launch {{.*}}name = "keys"
// CHECK: %[[K1:.*]] = plan.collective
// CHECK: name = "turn 0"
// CHECK: %[[K2:.*]] = plan.collective %[[K1]]
// CHECK: name = "turn 1"
// CHECK: plan.collective %[[K2]]
// CHECK: name = "turn 2"
// CHECK: name = "turn 3"
func.func @ring(%x: tensor<64xf32>) -> tensor<64xf32> {
  %h = plan.launch @k(%x, %x) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %k0 = plan.launch @k(%h, %h) {name = "keys", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %a0 = plan.launch @k(%h, %k0) {name = "turn 0", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %k1 = dist.shift %k0 {axes = ["cp"], distance = 1 : i64} : (tensor<64xf32>) -> tensor<64xf32>
  %a1 = plan.launch @k(%a0, %k1) {name = "turn 1", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %k2 = dist.shift %k1 {axes = ["cp"], distance = 1 : i64} : (tensor<64xf32>) -> tensor<64xf32>
  %a2 = plan.launch @k(%a1, %k2) {name = "turn 2", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  %k3 = dist.shift %k2 {axes = ["cp"], distance = 1 : i64} : (tensor<64xf32>) -> tensor<64xf32>
  %a3 = plan.launch @k(%a2, %k3) {name = "turn 3", extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
  return %a3 : tensor<64xf32>
}

// Of what is kept for the backward pass in another split: the exchange waits for the forward pass, else what it brings
// would be kept beside its operand, which is wanted again.
// CHECK-LABEL: func.func @exchanged_for_the_backward_pass
// CHECK: %[[X:.*]] = plan.launch @copy(%arg0)
// CHECK: %[[KEPT:.*]] = plan.launch @copy(%[[X]])
// CHECK: %[[LOSS:.*]] = plan.launch @copy(%[[KEPT]])
// CHECK: %[[OTHER:.*]] = plan.collective %[[KEPT]]
// CHECK: plan.launch @copy(%[[OTHER]])
func.func @exchanged_for_the_backward_pass(%x: tensor<64xf32>) -> (tensor<64xf32>, tensor<64xf32>) {
  %h = plan.launch @copy(%x) {place.at = #place.at<phase = forward>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>) -> tensor<64xf32>
  %kept = plan.launch @copy(%h) {place.at = #place.at<phase = forward>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>) -> tensor<64xf32>
  %loss = plan.launch @copy(%kept) {place.at = #place.at<phase = forward>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>) -> tensor<64xf32>
  %other = dist.all_to_all %kept {axes = ["dp"], place.at = #place.at<phase = backward>, dim = 0 : i64, split_dim = 0 : i64} : (tensor<64xf32>) -> tensor<64xf32>
  %dx = plan.launch @copy(%other) {place.at = #place.at<phase = backward>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>) -> tensor<64xf32>
  %dk = plan.launch @copy(%kept) {place.at = #place.at<phase = backward>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>) -> tensor<64xf32>
  return %dx, %dk : tensor<64xf32>, tensor<64xf32>
}
