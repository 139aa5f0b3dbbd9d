// Masks of long sequences are computed from positions, since tables of many numbers are not folded: those of a band, such
// as causal ones, are bounds, another one, as that in which a position does not see itself, a bias.
// RUN: cleave-opt %s --split-input-file --raise-attention | FileCheck %s

// CHECK-LABEL: func.func @model
// CHECK: onnx.ScaledAttention %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} {{{.*}}right_bound = 0 : i64
// CHECK-LABEL: func.func @model
// CHECK: onnx.ScaledAttention %{{[^,]*}}, %{{[^,]*}}, %{{[^,]*}} {{{.*}}right_bound = 0 : i64
// CHECK-LABEL: func.func @model
// CHECK-NOT: right_bound
func.func @model(%q: tensor<2x4x4x8xf32>, %k: tensor<2x4x4x8xf32>, %v: tensor<2x4x4x8xf32>) -> (tensor<2x4x4x8xf32> {onnx.name = "y"}) {
  %s = onnx.Contract %q, %k {lhs_indices = array<i64: 0, 1, 2, 4>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 3>} : (tensor<2x4x4x8xf32>, tensor<2x4x4x8xf32>) -> tensor<2x4x4x4xf32>
  %r = onnx.Constant dense<[1, 2, 3, 4]> : tensor<4xi64>
  %c = onnx.Iota {dim = 0 : i64, type = tensor<4xi64>} : () -> tensor<4xi64>
  %rows = onnx.Broadcast %r {dims = array<i64: 0>, shape = array<i64: 4, 4>} : (tensor<4xi64>) -> tensor<4x4xi64>
  %columns = onnx.Broadcast %c {dims = array<i64: 1>, shape = array<i64: 4, 4>} : (tensor<4xi64>) -> tensor<4x4xi64>
  %hidden = onnx.LessOrEqual %rows, %columns : (tensor<4x4xi64>, tensor<4x4xi64>) -> tensor<4x4xi1>
  %low = onnx.Constant dense<-3.40282347E+38> : tensor<4x4xf32>
  %zero = onnx.Constant dense<0.0> : tensor<4x4xf32>
  %table = onnx.Where %hidden, %low, %zero : (tensor<4x4xi1>, tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %mask = onnx.Broadcast %table {dims = array<i64: 2, 3>, shape = array<i64: 2, 4, 4, 4>} : (tensor<4x4xf32>) -> tensor<2x4x4x4xf32>
  %x = onnx.Add %s, %mask : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %m = onnx.ReduceMax %x {axes = array<i64: 3>} : (tensor<2x4x4x4xf32>) -> tensor<2x4x4xf32>
  %m0 = onnx.StopGradient %m : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %mb = onnx.Broadcast %m0 {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 4, 4, 4>} : (tensor<2x4x4xf32>) -> tensor<2x4x4x4xf32>
  %d = onnx.Sub %x, %mb : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %e = onnx.Exp %d : (tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %l = onnx.ReduceSum %e {axes = array<i64: 3>} : (tensor<2x4x4x4xf32>) -> tensor<2x4x4xf32>
  %lb = onnx.Broadcast %l {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 4, 4, 4>} : (tensor<2x4x4xf32>) -> tensor<2x4x4x4xf32>
  %p = onnx.Div %e, %lb : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %o = onnx.Contract %p, %v {lhs_indices = array<i64: 0, 1, 2, 3>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 4>} : (tensor<2x4x4x4xf32>, tensor<2x4x4x8xf32>) -> tensor<2x4x4x8xf32>
  return %o : tensor<2x4x4x8xf32>
}
// -----
func.func @model(%q: tensor<2x4x4x8xf32>, %k: tensor<2x4x4x8xf32>, %v: tensor<2x4x4x8xf32>) -> (tensor<2x4x4x8xf32> {onnx.name = "y"}) {
  %s = onnx.Contract %q, %k {lhs_indices = array<i64: 0, 1, 2, 4>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 3>} : (tensor<2x4x4x8xf32>, tensor<2x4x4x8xf32>) -> tensor<2x4x4x4xf32>
  %r = onnx.Iota {dim = 0 : i64, type = tensor<4xi64>} : () -> tensor<4xi64>
  %c = onnx.Iota {dim = 0 : i64, type = tensor<4xi64>} : () -> tensor<4xi64>
  %rows = onnx.Broadcast %r {dims = array<i64: 0>, shape = array<i64: 4, 4>} : (tensor<4xi64>) -> tensor<4x4xi64>
  %columns = onnx.Broadcast %c {dims = array<i64: 1>, shape = array<i64: 4, 4>} : (tensor<4xi64>) -> tensor<4x4xi64>
  %seen = onnx.GreaterOrEqual %rows, %columns : (tensor<4x4xi64>, tensor<4x4xi64>) -> tensor<4x4xi1>
  %ones = onnx.Cast %seen {to = f32} : (tensor<4x4xi1>) -> tensor<4x4xf32>
  %one = onnx.Constant dense<1.0> : tensor<4x4xf32>
  %low = onnx.Constant dense<-3.40282347E+38> : tensor<4x4xf32>
  %rest = onnx.Sub %one, %ones : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %table = onnx.Mul %rest, %low : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %mask = onnx.Broadcast %table {dims = array<i64: 2, 3>, shape = array<i64: 2, 4, 4, 4>} : (tensor<4x4xf32>) -> tensor<2x4x4x4xf32>
  %x = onnx.Add %s, %mask : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %m = onnx.ReduceMax %x {axes = array<i64: 3>} : (tensor<2x4x4x4xf32>) -> tensor<2x4x4xf32>
  %m0 = onnx.StopGradient %m : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %mb = onnx.Broadcast %m0 {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 4, 4, 4>} : (tensor<2x4x4xf32>) -> tensor<2x4x4x4xf32>
  %d = onnx.Sub %x, %mb : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %e = onnx.Exp %d : (tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %l = onnx.ReduceSum %e {axes = array<i64: 3>} : (tensor<2x4x4x4xf32>) -> tensor<2x4x4xf32>
  %lb = onnx.Broadcast %l {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 4, 4, 4>} : (tensor<2x4x4xf32>) -> tensor<2x4x4x4xf32>
  %p = onnx.Div %e, %lb : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %o = onnx.Contract %p, %v {lhs_indices = array<i64: 0, 1, 2, 3>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 4>} : (tensor<2x4x4x4xf32>, tensor<2x4x4x8xf32>) -> tensor<2x4x4x8xf32>
  return %o : tensor<2x4x4x8xf32>
}
// -----
func.func @model(%q: tensor<2x4x4x8xf32>, %k: tensor<2x4x4x8xf32>, %v: tensor<2x4x4x8xf32>) -> (tensor<2x4x4x8xf32> {onnx.name = "y"}) {
  %s = onnx.Contract %q, %k {lhs_indices = array<i64: 0, 1, 2, 4>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 3>} : (tensor<2x4x4x8xf32>, tensor<2x4x4x8xf32>) -> tensor<2x4x4x4xf32>
  %r = onnx.Iota {dim = 0 : i64, type = tensor<4xi64>} : () -> tensor<4xi64>
  %c = onnx.Iota {dim = 0 : i64, type = tensor<4xi64>} : () -> tensor<4xi64>
  %rows = onnx.Broadcast %r {dims = array<i64: 0>, shape = array<i64: 4, 4>} : (tensor<4xi64>) -> tensor<4x4xi64>
  %columns = onnx.Broadcast %c {dims = array<i64: 1>, shape = array<i64: 4, 4>} : (tensor<4xi64>) -> tensor<4x4xi64>
  %seen = onnx.Greater %rows, %columns : (tensor<4x4xi64>, tensor<4x4xi64>) -> tensor<4x4xi1>
  %ones = onnx.Cast %seen {to = f32} : (tensor<4x4xi1>) -> tensor<4x4xf32>
  %one = onnx.Constant dense<1.0> : tensor<4x4xf32>
  %low = onnx.Constant dense<-3.40282347E+38> : tensor<4x4xf32>
  %rest = onnx.Sub %one, %ones : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %table = onnx.Mul %rest, %low : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %mask = onnx.Broadcast %table {dims = array<i64: 2, 3>, shape = array<i64: 2, 4, 4, 4>} : (tensor<4x4xf32>) -> tensor<2x4x4x4xf32>
  %x = onnx.Add %s, %mask : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %m = onnx.ReduceMax %x {axes = array<i64: 3>} : (tensor<2x4x4x4xf32>) -> tensor<2x4x4xf32>
  %m0 = onnx.StopGradient %m : (tensor<2x4x4xf32>) -> tensor<2x4x4xf32>
  %mb = onnx.Broadcast %m0 {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 4, 4, 4>} : (tensor<2x4x4xf32>) -> tensor<2x4x4x4xf32>
  %d = onnx.Sub %x, %mb : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %e = onnx.Exp %d : (tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %l = onnx.ReduceSum %e {axes = array<i64: 3>} : (tensor<2x4x4x4xf32>) -> tensor<2x4x4xf32>
  %lb = onnx.Broadcast %l {dims = array<i64: 0, 1, 2>, shape = array<i64: 2, 4, 4, 4>} : (tensor<2x4x4xf32>) -> tensor<2x4x4x4xf32>
  %p = onnx.Div %e, %lb : (tensor<2x4x4x4xf32>, tensor<2x4x4x4xf32>) -> tensor<2x4x4x4xf32>
  %o = onnx.Contract %p, %v {lhs_indices = array<i64: 0, 1, 2, 3>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 1, 2, 4>} : (tensor<2x4x4x4xf32>, tensor<2x4x4x8xf32>) -> tensor<2x4x4x8xf32>
  return %o : tensor<2x4x4x8xf32>
}
