// RUN: cleave-opt %s --verify-plan --verify-diagnostics --split-input-file

module attributes {plan.arena_bytes = array<i64: 1024>} {
  plan.kernel @k(%a: tensor<64xf32>, %b: tensor<64xf32>) { plan.yield %a : tensor<64xf32> }
  func.func @final(%x: tensor<64xf32> {plan.offset = 0 : i64}) -> tensor<64xf32> {
    %a = plan.launch @k(%x, %x) {plan.offsets = array<i64: 256>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %b = plan.launch @k(%x, %x) {plan.offsets = array<i64: 384>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    // expected-error @+1 {{reads a value whose bytes 384 to 512 hold a result of 'plan.launch' at position 2 by then}}
    %c = plan.launch @k(%a, %b) {plan.offsets = array<i64: 640>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    return %c : tensor<64xf32>
  }
}

// -----

module attributes {plan.arena_bytes = array<i64: 512>} {
  plan.kernel @k(%a: tensor<64xf32>, %b: tensor<64xf32>) { plan.yield %a : tensor<64xf32> }
  func.func @final(%x: tensor<64xf32> {plan.offset = 0 : i64}) -> tensor<64xf32> {
    // expected-error @+1 {{writes bytes 448 to 704 of an arena of 512}}
    %a = plan.launch @k(%x, %x) {plan.offsets = array<i64: 448>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    return %a : tensor<64xf32>
  }
}

// -----

// A compute command overwrites the operand of a collective that still runs.
module attributes {plan.arena_bytes = array<i64: 1024>} {
  plan.kernel @k(%a: tensor<64xf32>, %b: tensor<64xf32>) { plan.yield %a : tensor<64xf32> }
  func.func @final(%x: tensor<64xf32> {plan.offset = 0 : i64}) -> tensor<64xf32> {
    %a = plan.launch @k(%x, %x) {plan.record = 1 : i64, plan.offsets = array<i64: 256>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    // expected-error @+1 {{reads a value whose bytes 256 to 512 hold a result of 'plan.launch' at position 3 by then}}
    %r = plan.collective %a {plan.offsets = array<i64: 512>, plan.stream = 1 : i64, plan.wait = array<i64: 1>, plan.record = 2 : i64, op = #dist.collective<all_reduce>, axes = ["dp"], reduce = #dist.reduction<sum>, dims = array<i64: -1>, split_dims = array<i64: -1>, why = "", sequence = 0 : i64} : (tensor<64xf32>) -> tensor<64xf32>
    %b = plan.launch @k(%x, %x) {plan.offsets = array<i64: 256>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %c = plan.launch @k(%b, %r) {plan.wait = array<i64: 2>, plan.offsets = array<i64: 768>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    return %c : tensor<64xf32>
  }
}

// -----

module attributes {plan.arena_bytes = array<i64: 512>} {
  onnx.param @w : tensor<64xf32> "parameter" {trainable = true, plan.program_offsets = array<i64: 0>}
  plan.kernel @k(%a: tensor<64xf32>, %b: tensor<64xf32>) { plan.yield %a : tensor<64xf32> }
  // expected-error @+1 {{overwrites @w with a result of 'plan.launch' at position 2}}
  func.func @final() -> tensor<64xf32> {
    %w = onnx.read @w {plan.offsets = array<i64: 0>} : tensor<64xf32>
    %a = plan.launch @k(%w, %w) {plan.offsets = array<i64: 128>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    return %a : tensor<64xf32>
  }
}

// -----

// A part that lies in its concatenation is still itself afterwards.
module attributes {plan.arena_bytes = array<i64: 1024>} {
  plan.kernel @k(%a: tensor<64xf32>, %b: tensor<64xf32>) { plan.yield %a : tensor<64xf32> }
  func.func @final(%x: tensor<64xf32> {plan.offset = 0 : i64}) -> (tensor<128xf32>, tensor<64xf32>) {
    %a = plan.launch @k(%x, %x) {plan.offsets = array<i64: 256>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %b = plan.launch @k(%a, %x) {plan.offsets = array<i64: 512>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %c = plan.concat %a, %b {plan.offsets = array<i64: 256>, axis = 0 : i64} : (tensor<64xf32>, tensor<64xf32>) -> tensor<128xf32>
    %d = plan.launch @k(%b, %x) {plan.offsets = array<i64: 768>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    return %c, %d : tensor<128xf32>, tensor<64xf32>
  }
}

// -----

// A part that was copied to its concatenation, whose own bytes another value has by then.
module attributes {plan.arena_bytes = array<i64: 1280>} {
  plan.kernel @k(%a: tensor<64xf32>, %b: tensor<64xf32>) { plan.yield %a : tensor<64xf32> }
  func.func @final(%x: tensor<64xf32> {plan.offset = 0 : i64}) -> (tensor<128xf32>, tensor<64xf32>) {
    %a = plan.launch @k(%x, %x) {plan.offsets = array<i64: 256>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %b = plan.launch @k(%a, %x) {plan.offsets = array<i64: 512>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    %c = plan.concat %b, %a {plan.offsets = array<i64: 512>, axis = 0 : i64} : (tensor<64xf32>, tensor<64xf32>) -> tensor<128xf32>
    %d = plan.launch @k(%x, %x) {plan.offsets = array<i64: 256>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    // expected-error @+1 {{reads a value whose bytes 256 to 512 hold a result of 'plan.launch' at position 4 by then}}
    %e = plan.launch @k(%a, %d) {plan.offsets = array<i64: 1024>, extent = 64 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<64xf32>, tensor<64xf32>) -> tensor<64xf32>
    return %c, %e : tensor<128xf32>, tensor<64xf32>
  }
}

// -----

module attributes {plan.arena_bytes = array<i64: 512>} {
  // expected-error @+1 {{has 29 buffers; 28 are the most}}
  plan.kernel @k(%a0: tensor<4xf32>, %a1: tensor<4xf32>, %a2: tensor<4xf32>, %a3: tensor<4xf32>, %a4: tensor<4xf32>, %a5: tensor<4xf32>, %a6: tensor<4xf32>, %a7: tensor<4xf32>, %a8: tensor<4xf32>, %a9: tensor<4xf32>, %a10: tensor<4xf32>, %a11: tensor<4xf32>, %a12: tensor<4xf32>, %a13: tensor<4xf32>, %a14: tensor<4xf32>, %a15: tensor<4xf32>, %a16: tensor<4xf32>, %a17: tensor<4xf32>, %a18: tensor<4xf32>, %a19: tensor<4xf32>, %a20: tensor<4xf32>, %a21: tensor<4xf32>, %a22: tensor<4xf32>, %a23: tensor<4xf32>, %a24: tensor<4xf32>, %a25: tensor<4xf32>, %a26: tensor<4xf32>, %a27: tensor<4xf32>) { plan.yield %a0 : tensor<4xf32> }
}

// -----

// Between the writes of two parts in rows something else takes the bytes between them.
module attributes {plan.arena_bytes = array<i64: 1024>} {
  plan.kernel @k(%a: tensor<16xf32>) { plan.yield %a : tensor<16xf32> }
  func.func @final(%x: tensor<4x4xf32> {plan.offset = 0 : i64}, %v: tensor<16xf32> {plan.offset = 64 : i64}) -> (tensor<4x8xf32>, tensor<16xf32>) {
    %a = plan.contract %x, %x {plan.offsets = array<i64: 256>, plan.rows = array<i64: 4, 8>, batch = array<i64>, m = 4 : i64, n = 4 : i64, k = 4 : i64, lhs_strides = array<i64: 4, 1>, rhs_strides = array<i64: 4, 1>, out_strides = array<i64: 4, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %l = plan.launch @k(%v) {plan.offsets = array<i64: 256>, extent = 16 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-error @+1 {{writes between rows whose bytes 256 to 320 hold a result of 'plan.launch' at position 2 by then}}
    %b = plan.contract %x, %x {plan.offsets = array<i64: 272>, plan.rows = array<i64: 4, 8>, batch = array<i64>, m = 4 : i64, n = 4 : i64, k = 4 : i64, lhs_strides = array<i64: 4, 1>, rhs_strides = array<i64: 4, 1>, out_strides = array<i64: 4, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %j = plan.concat %a, %b {axis = 1 : i64, plan.offsets = array<i64: 256>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32>
    return %j, %l : tensor<4x8xf32>, tensor<16xf32>
  }
}

// -----

module attributes {plan.arena_bytes = array<i64: 1024>} {
  plan.kernel @k(%a: tensor<16xf32>) { plan.yield %a : tensor<16xf32> }
  func.func @final(%x: tensor<4x4xf32> {plan.offset = 0 : i64}, %v: tensor<16xf32> {plan.offset = 64 : i64}) -> (tensor<4x8xf32>, tensor<16xf32>) {
    %a = plan.contract %x, %x {plan.offsets = array<i64: 256>, plan.rows = array<i64: 4, 8>, batch = array<i64>, m = 4 : i64, n = 4 : i64, k = 4 : i64, lhs_strides = array<i64: 4, 1>, rhs_strides = array<i64: 4, 1>, out_strides = array<i64: 4, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %b = plan.contract %x, %x {plan.offsets = array<i64: 272>, plan.rows = array<i64: 4, 8>, batch = array<i64>, m = 4 : i64, n = 4 : i64, k = 4 : i64, lhs_strides = array<i64: 4, 1>, rhs_strides = array<i64: 4, 1>, out_strides = array<i64: 4, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %l = plan.launch @k(%v) {plan.offsets = array<i64: 320>, extent = 16 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<16xf32>) -> tensor<16xf32>
    // expected-error @+1 {{reads a value whose bytes 320 to 384 hold a result of 'plan.launch' at position 3 by then}}
    %j = plan.concat %a, %b {axis = 1 : i64, plan.offsets = array<i64: 256>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32>
    return %j, %l : tensor<4x8xf32>, tensor<16xf32>
  }
}

// -----

// Rows that are not those of the part, and rows without a concatenation.
module attributes {plan.arena_bytes = array<i64: 1024>} {
  func.func @other_rows(%x: tensor<4x4xf32> {plan.offset = 0 : i64}) -> tensor<4x8xf32> {
    // expected-error @+1 {{writes rows that are not those of a part of a concatenation}}
    %a = plan.contract %x, %x {plan.offsets = array<i64: 256>, plan.rows = array<i64: 2, 8>, batch = array<i64>, m = 4 : i64, n = 4 : i64, k = 4 : i64, lhs_strides = array<i64: 4, 1>, rhs_strides = array<i64: 4, 1>, out_strides = array<i64: 4, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    %j = plan.concat %a, %x {axis = 1 : i64, plan.offsets = array<i64: 256>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x8xf32>
    return %j : tensor<4x8xf32>
  }
}

// -----

module attributes {plan.arena_bytes = array<i64: 1024>} {
  func.func @no_whole(%x: tensor<4x4xf32> {plan.offset = 0 : i64}) -> tensor<4x4xf32> {
    // expected-error @+1 {{writes rows that are not those of a part of a concatenation}}
    %a = plan.contract %x, %x {plan.offsets = array<i64: 256>, plan.rows = array<i64: 4, 8>, batch = array<i64>, m = 4 : i64, n = 4 : i64, k = 4 : i64, lhs_strides = array<i64: 4, 1>, rhs_strides = array<i64: 4, 1>, out_strides = array<i64: 4, 1>, operandSegmentSizes = array<i32: 1, 1, 0, 0, 0>} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
    return %a : tensor<4x4xf32>
  }
}

// -----

// expected-error @+1 {{has no plan.arena_bytes: run plan-memory first}}
module {
  func.func @final(%x: tensor<64xf32> {plan.offset = 0 : i64}) -> tensor<64xf32> { return %x : tensor<64xf32> }
}

// -----

module attributes {plan.arena_bytes = array<i64: 512>} {
  func.func @final(%x: tensor<64xf32> {plan.offset = 0 : i64}) -> tensor<64xf32> {
    // expected-error @+1 {{stores to a persistent tensor that does not exist}}
    plan.store %x, @w : tensor<64xf32>
    return %x : tensor<64xf32>
  }
}

// -----

module attributes {plan.arena_bytes = array<i64: 1024>} {
  onnx.param @w : tensor<64xf32> "parameter" {trainable = true, plan.program_offsets = array<i64: 0>}
  func.func @final(%x: tensor<64xf32> {plan.offset = 256 : i64}) -> tensor<64xf32> {
    // expected-error @+1 {{says it is in place, but its value lies elsewhere}}
    plan.store %x, @w {in_place} : tensor<64xf32>
    return %x : tensor<64xf32>
  }
}

// -----

module attributes {plan.arena_bytes = array<i64: 1024>} {
  func.func @final(%x: tensor<64xf32> {plan.offset = 0 : i64}) -> tensor<64xf32> {
    // expected-error @+1 {{is number 0 of its group, but says 3}}
    %r = plan.collective %x {plan.offsets = array<i64: 512>, op = #dist.collective<all_reduce>, axes = ["dp"], reduce = #dist.reduction<sum>, dims = array<i64: -1>, split_dims = array<i64: -1>, why = "", sequence = 3 : i64} : (tensor<64xf32>) -> tensor<64xf32>
    return %r : tensor<64xf32>
  }
}
