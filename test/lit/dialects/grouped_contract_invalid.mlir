// RUN: cleave-opt %s --split-input-file --verify-diagnostics

func.func @types(%x: tensor<10x8xf32>, %w: tensor<4x8x6xf16>, %g: tensor<10xi64>) {
  // expected-error@+2 {{operands differ in element type}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = onnx.GroupedContract %x, %w, %g {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 3, 1, 2>, row_indices = array<i64: 0>, result_indices = array<i64: 0, 2>, group_index = 3 : i64, group_count = 4 : i64} : (tensor<10x8xf32>, tensor<4x8x6xf16>, tensor<10xi64>) -> tensor<10x6xf32>
  return
}

// -----

func.func @groups_of_floats(%x: tensor<10x8xf32>, %w: tensor<4x8x6xf32>, %g: tensor<10xf32>) {
  // expected-error@+2 {{groups are counted by i32 or i64, not 'tensor<10xf32>'}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = onnx.GroupedContract %x, %w, %g {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 3, 1, 2>, row_indices = array<i64: 0>, result_indices = array<i64: 0, 2>, group_index = 3 : i64, group_count = 4 : i64} : (tensor<10x8xf32>, tensor<4x8x6xf32>, tensor<10xf32>) -> tensor<10x6xf32>
  return
}

// -----

func.func @another_number_of_groups(%x: tensor<10x8xf32>, %w: tensor<4x8x6xf32>, %g: tensor<10xi64>) {
  // expected-error@+2 {{indices do not fit 'tensor<10x8xf32>', 'tensor<4x8x6xf32>' and 'tensor<10xi64>'}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = onnx.GroupedContract %x, %w, %g {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 3, 1, 2>, row_indices = array<i64: 0>, result_indices = array<i64: 0, 2>, group_index = 3 : i64, group_count = 5 : i64} : (tensor<10x8xf32>, tensor<4x8x6xf32>, tensor<10xi64>) -> tensor<10x6xf32>
  return
}

// -----

func.func @rows_of_another_size(%x: tensor<10x8xf32>, %w: tensor<4x8x6xf32>, %g: tensor<9xi64>) {
  // expected-error@+2 {{indices do not fit}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = onnx.GroupedContract %x, %w, %g {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 3, 1, 2>, row_indices = array<i64: 0>, result_indices = array<i64: 0, 2>, group_index = 3 : i64, group_count = 4 : i64} : (tensor<10x8xf32>, tensor<4x8x6xf32>, tensor<9xi64>) -> tensor<10x6xf32>
  return
}

// -----

func.func @summed_rows(%x: tensor<10x8xf32>, %w: tensor<4x8x6xf32>, %g: tensor<10xi64>) {
  // expected-error@+2 {{index 0 stands in the wrong tensors: the group in rhs or the result, rows in lhs and one more, all others in two}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = onnx.GroupedContract %x, %w, %g {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 3, 1, 2>, row_indices = array<i64: 0>, result_indices = array<i64: 2>, group_index = 3 : i64, group_count = 4 : i64} : (tensor<10x8xf32>, tensor<4x8x6xf32>, tensor<10xi64>) -> tensor<6xf32>
  return
}

// -----

func.func @repeated(%x: tensor<10x8xf32>, %w: tensor<4x8x6xf32>, %g: tensor<10xi64>) {
  // expected-error@+2 {{a result index is repeated or in no operand}}
  // expected-error@+1 {{failed to infer returned types}}
  %y = onnx.GroupedContract %x, %w, %g {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 3, 1, 2>, row_indices = array<i64: 0>, result_indices = array<i64: 0, 7>, group_index = 3 : i64, group_count = 4 : i64} : (tensor<10x8xf32>, tensor<4x8x6xf32>, tensor<10xi64>) -> tensor<10x6xf32>
  return
}
