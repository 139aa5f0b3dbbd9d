// RUN: split-file %s %t
// RUN: cleave-opt %t/step.mlir --apply-decision="file=%t/decision.txt" | FileCheck %s
// RUN: not cleave-opt %t/step.mlir --apply-decision="file=%t/missing.txt" 2>&1 | FileCheck %s --check-prefix=MISSING

// MISSING: cannot read the decision file
// CHECK: module attributes {dist.batch_axes = #dist.axes<[dp]>, dist.mesh = #dist.mesh<"dp=2,tp=2">, dist.zero_axes = #dist.axes<[dp]>}
// CHECK: onnx.param @w {{.*}}dist.update_sharding = #dist.sharding<"[{dp},{tp}]">, sharding = #dist.sharding<"[{},{tp}]">
// CHECK: onnx.param @"exp_avg/w" {{.*}}sharding = #dist.sharding<"[{dp},{tp}]">
// CHECK: onnx.Contract {{.*}}dist.factors = #dist.factors<[dp], [tp], []>

//--- decision.txt
cleave-decision 2
mesh dp=2,tp=2
batch-axes dp
zero 1 dp
node "/up/MatMul" dp tp -
parameter "w" [-,tp] [-,tp] [dp,tp]
//--- step.mlir
onnx.param @w : tensor<64x256xf32> "parameter" {trainable = true}
onnx.param @"exp_avg/w" : tensor<64x256xf32> "optimizer_state" {trainable = false, of = @w}
func.func @final(%x: tensor<8x64xf32>) -> tensor<8x256xf32> {
  %w = onnx.read @w : tensor<64x256xf32>
  %y = onnx.Contract %x, %w {place.at = #place.at<phase = forward>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<8x64xf32>, tensor<64x256xf32>) -> tensor<8x256xf32> loc("/up/MatMul")
  return %y : tensor<8x256xf32>
}
