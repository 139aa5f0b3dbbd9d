// RUN: cleave-opt %s --split-input-file --verify-diagnostics | FileCheck %s

// CHECK: dist.reshard %{{.*}} from <"[{dp},{}] partial(tp)"> to <"[{dp},{tp}]"> : tensor<8x4xf32>
func.func @f(%x: tensor<8x4xf32>) -> tensor<8x4xf32> {
  %0 = dist.reshard %x from <"[{dp},{}] partial(tp)"> to <"[{dp},{tp}]"> : tensor<8x4xf32>
  return %0 : tensor<8x4xf32>
}
// -----
// expected-error @+1 {{axis 'dp' stands twice}}
func.func private @twice(tensor<8x4xf32> {dist.layout = #dist.sharding<"[{dp},{dp}]">})
// -----
// expected-error @+1 {{one {axes} a dimension}}
func.func private @malformed(tensor<8x4xf32> {dist.layout = #dist.sharding<"dp">})
