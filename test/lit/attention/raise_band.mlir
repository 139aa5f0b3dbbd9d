// Masks that show a band of positions become bounds: a sliding window, as transformers compute it in four dimensions; a
// causal mask whose last query stands at the last key; a window that looks ahead, where the library takes any band.
// Scales are rounded to fp32, as its products are scaled.
// RUN: cleave-opt %s --split-input-file --raise-attention | FileCheck %s
// RUN: cleave-opt %s --split-input-file --raise-attention=any-band=true | FileCheck %s --check-prefix=ANY
// RUN: cleave-opt %s --split-input-file --raise-attention --decompose-attention | FileCheck %s --check-prefix=WRITTEN

// CHECK-LABEL: func.func @model
// CHECK: onnx.ScaledAttention %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} {left_bound = 2 : i64, {{.*}}right_bound = 0 : i64
// CHECK-LABEL: func.func @model
// CHECK: onnx.ScaledAttention %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} {place{{.*}}right_bound = 2 : i64, scale = 0.01000000070
// CHECK-LABEL: func.func @model
// CHECK: onnx.ScaledAttention %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} {place
// CHECK-NOT: right_bound
// ANY-COUNT-3: right_bound = {{[0-2]}} : i64
// ANY-NOT: onnx.ScaledAttention

// WRITTEN-LABEL: func.func @model
// WRITTEN: onnx.LessOrEqual
// WRITTEN: %[[END:.*]] = onnx.Add %{{.*}} : (tensor<4x4xi64>, tensor<4x4xi64>) -> tensor<4x4xi64>
// WRITTEN: onnx.Less %{{.*}}, %[[END]]
func.func @model(%q: tensor<2x1x4x8xf32>, %k: tensor<2x1x4x8xf32>, %v: tensor<2x1x4x8xf32>) -> (tensor<2x1x4x8xf32> {onnx.name = "y"}) {
  %s = onnx.Contract %q, %k {lhs_indices = array<i64: 0, 1, 2, 4>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 3>} : (tensor<2x1x4x8xf32>, tensor<2x1x4x8xf32>) -> tensor<2x1x4x4xf32>
  %i = onnx.Iota {dim = 0 : i64, type = tensor<4xi64>} : () -> tensor<4xi64>
  %r = onnx.Reshape %i {shape = array<i64: 1, 1, 4, 1>} : (tensor<4xi64>) -> tensor<1x1x4x1xi64>
  %r1 = onnx.Reshape %r {shape = array<i64: 4>} : (tensor<1x1x4x1xi64>) -> tensor<4xi64>
  %rows = onnx.Broadcast %r1 {dims = array<i64: 2>, shape = array<i64: 2, 1, 4, 4>} : (tensor<4xi64>) -> tensor<2x1x4x4xi64>
  %columns = onnx.Broadcast %i {dims = array<i64: 3>, shape = array<i64: 2, 1, 4, 4>} : (tensor<4xi64>) -> tensor<2x1x4x4xi64>
  %two = onnx.Constant dense<2> : tensor<2x1x4x4xi64>
  %begin = onnx.Sub %rows, %two : (tensor<2x1x4x4xi64>, tensor<2x1x4x4xi64>) -> tensor<2x1x4x4xi64>
  %near = onnx.Greater %columns, %begin : (tensor<2x1x4x4xi64>, tensor<2x1x4x4xi64>) -> tensor<2x1x4x4xi1>
  %past = onnx.LessOrEqual %columns, %rows : (tensor<2x1x4x4xi64>, tensor<2x1x4x4xi64>) -> tensor<2x1x4x4xi1>
  %seen = onnx.And %near, %past : (tensor<2x1x4x4xi1>, tensor<2x1x4x4xi1>) -> tensor<2x1x4x4xi1>
  %low = onnx.Constant dense<-3.40282347E+38> : tensor<2x1x4x4xf32>
  %zero = onnx.Constant dense<0.0> : tensor<2x1x4x4xf32>
  %mask = onnx.Where %seen, %zero, %low : (tensor<2x1x4x4xi1>, tensor<2x1x4x4xf32>, tensor<2x1x4x4xf32>) -> tensor<2x1x4x4xf32>
  %x = onnx.Add %s, %mask : (tensor<2x1x4x4xf32>, tensor<2x1x4x4xf32>) -> tensor<2x1x4x4xf32>
  %m = onnx.ReduceMax %x {axes = array<i64: 3>} : (tensor<2x1x4x4xf32>) -> tensor<2x1x4xf32>
  %mb = onnx.Broadcast %m {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 1, 4, 4>} : (tensor<2x1x4xf32>) -> tensor<2x1x4x4xf32>
  %d = onnx.Sub %x, %mb : (tensor<2x1x4x4xf32>, tensor<2x1x4x4xf32>) -> tensor<2x1x4x4xf32>
  %e = onnx.Exp %d : (tensor<2x1x4x4xf32>) -> tensor<2x1x4x4xf32>
  %l = onnx.ReduceSum %e {axes = array<i64: 3>} : (tensor<2x1x4x4xf32>) -> tensor<2x1x4xf32>
  %lb = onnx.Broadcast %l {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 1, 4, 4>} : (tensor<2x1x4xf32>) -> tensor<2x1x4x4xf32>
  %p = onnx.Div %e, %lb : (tensor<2x1x4x4xf32>, tensor<2x1x4x4xf32>) -> tensor<2x1x4x4xf32>
  %o = onnx.Contract %p, %v {lhs_indices = array<i64: 0, 1, 2, 3>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 4>} : (tensor<2x1x4x4xf32>, tensor<2x1x4x8xf32>) -> tensor<2x1x4x8xf32>
  return %o : tensor<2x1x4x8xf32>
}
// -----
func.func @model(%q: tensor<2x1x2x8xf32>, %k: tensor<2x1x4x8xf32>, %v: tensor<2x1x4x8xf32>) -> (tensor<2x1x2x8xf32> {onnx.name = "y"}) {
  %qs = onnx.Constant dense<1.0e-01> : tensor<2x1x2x8xf32>
  %ks = onnx.Constant dense<1.0e-01> : tensor<2x1x4x8xf32>
  %qm = onnx.Mul %q, %qs : (tensor<2x1x2x8xf32>, tensor<2x1x2x8xf32>) -> tensor<2x1x2x8xf32>
  %km = onnx.Mul %k, %ks : (tensor<2x1x4x8xf32>, tensor<2x1x4x8xf32>) -> tensor<2x1x4x8xf32>
  %s = onnx.Contract %qm, %km {lhs_indices = array<i64: 0, 1, 2, 4>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 3>} : (tensor<2x1x2x8xf32>, tensor<2x1x4x8xf32>) -> tensor<2x1x2x4xf32>
  %table = onnx.Constant dense<[[0.0, 0.0, 0.0, 0xFF800000], [0.0, 0.0, 0.0, 0.0]]> : tensor<2x4xf32>
  %mask = onnx.Broadcast %table {dims = array<i64: 2, 3>, shape = array<i64: 2, 1, 2, 4>} : (tensor<2x4xf32>) -> tensor<2x1x2x4xf32>
  %x = onnx.Add %s, %mask : (tensor<2x1x2x4xf32>, tensor<2x1x2x4xf32>) -> tensor<2x1x2x4xf32>
  %m = onnx.ReduceMax %x {axes = array<i64: 3>} : (tensor<2x1x2x4xf32>) -> tensor<2x1x2xf32>
  %mb = onnx.Broadcast %m {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 1, 2, 4>} : (tensor<2x1x2xf32>) -> tensor<2x1x2x4xf32>
  %d = onnx.Sub %x, %mb : (tensor<2x1x2x4xf32>, tensor<2x1x2x4xf32>) -> tensor<2x1x2x4xf32>
  %e = onnx.Exp %d : (tensor<2x1x2x4xf32>) -> tensor<2x1x2x4xf32>
  %l = onnx.ReduceSum %e {axes = array<i64: 3>} : (tensor<2x1x2x4xf32>) -> tensor<2x1x2xf32>
  %lb = onnx.Broadcast %l {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 1, 2, 4>} : (tensor<2x1x2xf32>) -> tensor<2x1x2x4xf32>
  %p = onnx.Div %e, %lb : (tensor<2x1x2x4xf32>, tensor<2x1x2x4xf32>) -> tensor<2x1x2x4xf32>
  %o = onnx.Contract %p, %v {lhs_indices = array<i64: 0, 1, 2, 3>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 4>} : (tensor<2x1x2x4xf32>, tensor<2x1x4x8xf32>) -> tensor<2x1x2x8xf32>
  return %o : tensor<2x1x2x8xf32>
}
// -----
func.func @model(%q: tensor<2x1x4x8xf32>, %k: tensor<2x1x4x8xf32>, %v: tensor<2x1x4x8xf32>) -> (tensor<2x1x4x8xf32> {onnx.name = "y"}) {
  %s = onnx.Contract %q, %k {lhs_indices = array<i64: 0, 1, 2, 4>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 3>} : (tensor<2x1x4x8xf32>, tensor<2x1x4x8xf32>) -> tensor<2x1x4x4xf32>
  %table = onnx.Constant dense<[[true, true, false, false], [true, true, true, false], [false, true, true, true], [false, false, true, true]]> : tensor<4x4xi1>
  %seen = onnx.Broadcast %table {dims = array<i64: 2, 3>, shape = array<i64: 2, 1, 4, 4>} : (tensor<4x4xi1>) -> tensor<2x1x4x4xi1>
  %low = onnx.Constant dense<-3.40282347E+38> : tensor<2x1x4x4xf32>
  %x = onnx.Where %seen, %s, %low : (tensor<2x1x4x4xi1>, tensor<2x1x4x4xf32>, tensor<2x1x4x4xf32>) -> tensor<2x1x4x4xf32>
  %m = onnx.ReduceMax %x {axes = array<i64: 3>} : (tensor<2x1x4x4xf32>) -> tensor<2x1x4xf32>
  %mb = onnx.Broadcast %m {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 1, 4, 4>} : (tensor<2x1x4xf32>) -> tensor<2x1x4x4xf32>
  %d = onnx.Sub %x, %mb : (tensor<2x1x4x4xf32>, tensor<2x1x4x4xf32>) -> tensor<2x1x4x4xf32>
  %e = onnx.Exp %d : (tensor<2x1x4x4xf32>) -> tensor<2x1x4x4xf32>
  %l = onnx.ReduceSum %e {axes = array<i64: 3>} : (tensor<2x1x4x4xf32>) -> tensor<2x1x4xf32>
  %lb = onnx.Broadcast %l {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 1, 4, 4>} : (tensor<2x1x4xf32>) -> tensor<2x1x4x4xf32>
  %p = onnx.Div %e, %lb : (tensor<2x1x4x4xf32>, tensor<2x1x4x4xf32>) -> tensor<2x1x4x4xf32>
  %o = onnx.Contract %p, %v {lhs_indices = array<i64: 0, 1, 2, 3>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 4>} : (tensor<2x1x4x4xf32>, tensor<2x1x4x8xf32>) -> tensor<2x1x4x8xf32>
  return %o : tensor<2x1x4x8xf32>
}
