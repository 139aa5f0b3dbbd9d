// RUN: cleave-opt %s --plan-memory --verify-plan | FileCheck %s

// Parts of concatenations whose places are rows between those of other parts.
module {
  plan.kernel @k(%a: tensor<64xf32>, %b: tensor<64xf32>) { plan.yield %a : tensor<64xf32> }

  // Side by side in rows: a product and a transpose write their parts; what a launch makes, or two read, is copied there.
  // CHECK-LABEL: func.func @rows
  // CHECK: plan.contract {{.*}}plan.offsets = array<i64: [[J:[0-9]+]]>, plan.rows = array<i64: 4, 12>
  // CHECK: plan.copy {{.*}}plan.rows = array<i64: 8, 12>
  // CHECK: plan.concat {{.*}}plan.offsets = array<i64: [[J]]>
  // CHECK-NOT: plan.rows
  // CHECK: return
  func.func @rows(%x: tensor<4x4xf32>, %y: tensor<8x4xf32>, %v: tensor<64xf32>) -> (tensor<4x12xf32>, tensor<4x12xf32>) {
    %a = plan.contract %x, %x {batch = array<i64>, m = 4 : i64, n = 4 : i64, k = 4 : i64, lhs_strides = array<i64: 4, 1>, rhs_strides = array<i64: 4, 1>, out_strides = array<i64: 4, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %t = plan.copy %y {sizes = array<i64: 4, 8>, source_offset = #plan.affine<base = 0, axes = [], strides = []>, source_strides = array<i64: 1, 4>, target_strides = array<i64: 8, 1>} : (tensor<8x4xf32>) -> tensor<4x8xf32>
    %j = plan.concat %a, %t {axis = 1 : i64} : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x12xf32>
    %l = plan.launch @k(%v, %v) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %p = plan.view %l : (tensor<64xf32>) -> tensor<4x8xf32>
    %b = plan.contract %x, %x {batch = array<i64>, m = 4 : i64, n = 4 : i64, k = 4 : i64, lhs_strides = array<i64: 4, 1>, rhs_strides = array<i64: 4, 1>, out_strides = array<i64: 4, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %c = plan.contract %b, %x {batch = array<i64>, m = 4 : i64, n = 4 : i64, k = 4 : i64, lhs_strides = array<i64: 4, 1>, rhs_strides = array<i64: 4, 1>, out_strides = array<i64: 4, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %k = plan.concat %b, %p {axis = 1 : i64} : (tensor<4x4xf32>, tensor<4x8xf32>) -> tensor<4x12xf32>
    plan.check_finite %c {what = "c"} : tensor<4x4xf32>
    return %j, %k : tensor<4x12xf32>, tensor<4x12xf32>
  }

  // The whole would lie beside all that is made and read before its second part: the first part is copied in the end.
  // CHECK-LABEL: func.func @rows_apart
  // CHECK-NOT: plan.rows = array<i64: 4, 68>
  // CHECK: return
  func.func @rows_apart(%x: tensor<4x4xf32>, %v: tensor<64xf32>, %w: tensor<64x4xf32>) -> tensor<4x68xf32> {
    %a = plan.contract %x, %x {batch = array<i64>, m = 4 : i64, n = 4 : i64, k = 4 : i64, lhs_strides = array<i64: 4, 1>, rhs_strides = array<i64: 4, 1>, out_strides = array<i64: 4, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %l = plan.launch @k(%v, %v) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %m = plan.launch @k(%l, %v) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %n = plan.launch @k(%m, %l) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %o = plan.launch @k(%n, %m) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %p = plan.launch @k(%o, %n) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %q = plan.launch @k(%p, %l) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %r = plan.launch @k(%q, %m) {extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    plan.check_finite %r {what = "r"} : tensor<64xf32>
    %t = plan.copy %w {sizes = array<i64: 4, 64>, source_offset = #plan.affine<base = 0, axes = [], strides = []>, source_strides = array<i64: 1, 4>, target_strides = array<i64: 64, 1>} : (tensor<64x4xf32>) -> tensor<4x64xf32>
    %j = plan.concat %a, %t {axis = 1 : i64} : (tensor<4x4xf32>, tensor<4x64xf32>) -> tensor<4x68xf32>
    return %j : tensor<4x68xf32>
  }

  // Four heads of queries share two of keys and values: a part has the rows of its own heads.
  // CHECK-LABEL: func.func @attention
  // CHECK: plan.attention {{.*}}plan.offsets = array<i64: [[J:[0-9]+]], {{[0-9]+}}, {{[0-9]+}}>, plan.rows = array<i64: 32, 64, 16, 64, 16, 64>
  // CHECK: plan.concat {{.*}}plan.offsets = array<i64: [[J]]>
  func.func @attention(%x: tensor<2x8x8x8xbf16>, %o: tensor<2x8x4x8xbf16>, %s: tensor<2x4x8xf32>) -> tensor<2x8x8x8xbf16> {
    %dq, %dk, %dv = plan.attention %x, %x, %x, %o, %s, %o {sizes = array<i64: 2, 4, 2, 8, 8, 8, 8>, query_strides = array<i64: 512, 8, 64, 1>, key_strides = array<i64: 512, 8, 64, 1>, value_strides = array<i64: 512, 8, 64, 1>, bias_strides = array<i64>, gradient_strides = array<i64: 256, 8, 32, 1, 128, 8, 16, 1, 128, 8, 16, 1>, offsets = array<i64: 0, 32, 48>, scale = 1.0 : f64, operandSegmentSizes = array<i32: 1, 1, 1, 0, 1, 1, 1>} : (tensor<2x8x8x8xbf16>, tensor<2x8x8x8xbf16>, tensor<2x8x8x8xbf16>, tensor<2x8x4x8xbf16>, tensor<2x4x8xf32>, tensor<2x8x4x8xbf16>) -> (tensor<2x8x4x8xbf16>, tensor<2x8x2x8xbf16>, tensor<2x8x2x8xbf16>)
    %j = plan.concat %dq, %dk, %dv {axis = 2 : i64} : (tensor<2x8x4x8xbf16>, tensor<2x8x2x8xbf16>, tensor<2x8x2x8xbf16>) -> tensor<2x8x8x8xbf16>
    return %j : tensor<2x8x8x8xbf16>
  }

  // A concatenation that a later fragment reads has its place in the slot from the fragment's first command on.
  // CHECK-LABEL: func.func @kept
  // CHECK: plan.contract {{.*}}plan.offsets = array<i64: [[SLOT:[0-9]+]]>, plan.rows = array<i64: 4, 8>
  // CHECK: plan.contract {{.*}}plan.rows = array<i64: 4, 8>
  // CHECK: plan.concat {{.*}}plan.offsets = array<i64: [[SLOT]]>
  func.func @kept(%x: tensor<4x4xf32>) -> (tensor<4x8xf32> {place.kept = 1 : i64}) attributes {place.region = "step.0", place.slots = 2 : i64} {
    %a = plan.contract %x, %x {batch = array<i64>, m = 4 : i64, n = 4 : i64, k = 4 : i64, lhs_strides = array<i64: 4, 1>, rhs_strides = array<i64: 4, 1>, out_strides = array<i64: 4, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %b = plan.contract %x, %x {batch = array<i64>, m = 4 : i64, n = 4 : i64, k = 4 : i64, lhs_strides = array<i64: 4, 1>, rhs_strides = array<i64: 4, 1>, out_strides = array<i64: 4, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %j = plan.concat %a, %b {axis = 1 : i64} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32>
    return %j : tensor<4x8xf32>
  }
}
