// RUN: split-file %s %t
// RUN: not cleave-opt %t/step.mlir --apply-decision="file=%t/twice.txt" 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not cleave-opt %t/step.mlir --apply-decision="file=%t/parameter.txt" 2>&1 | FileCheck %s --check-prefix=PARAMETER
// RUN: not cleave-opt %t/step.mlir --apply-decision="file=%t/rank.txt" 2>&1 | FileCheck %s --check-prefix=RANK
// RUN: not cleave-opt %t/step.mlir --apply-decision="file=%t/unknown.txt" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// RUN: not cleave-opt %t/named.mlir --apply-decision="file=%t/unused.txt" 2>&1 | FileCheck %s --check-prefix=UNUSED
// RUN: not cleave-opt %t/named.mlir --apply-decision="file=%t/microbatches.txt" 2>&1 | FileCheck %s --check-prefix=UNUSED
// RUN: not cleave-opt %t/step.mlir --apply-decision="file=%t/factors.txt" 2>&1 | FileCheck %s --check-prefix=FACTORS
// What is decided never vanishes silently.

// TWICE: the decision names operation '/up/MatMul' twice
// PARAMETER: the decision names parameter 'v', and the step has none of that name
// UNKNOWN: the decision names operation '/up/MatMull', and the step has none of that name
// UNUSED: 'onnx.Contract' op is '/up/MatMul', which the decision does not name
// FACTORS: 'onnx.Contract' op has 3 factors, and the decision splits 2
// RANK: has 2 dimensions, and the decision splits 1

//--- twice.txt
cleave-decision 2
mesh dp=2,tp=2
batch-axes dp
node "/up/MatMul" dp tp -
node "/up/MatMul" dp - -
//--- unknown.txt
cleave-decision 2
mesh dp=2,tp=2
batch-axes dp
node "/up/MatMul" dp tp -
node "/up/MatMull" dp tp -
//--- unused.txt
cleave-decision 2
mesh dp=2,tp=2
batch-axes dp
//--- microbatches.txt
cleave-decision 2
mesh dp=2,tp=2
batch-axes dp
microbatches 4
//--- factors.txt
cleave-decision 2
mesh dp=2,tp=2
batch-axes dp
node "/up/MatMul" dp tp
//--- parameter.txt
cleave-decision 2
mesh dp=2,tp=2
batch-axes dp
node "/up/MatMul" dp tp -
parameter "v" [-,tp] [-,tp] [dp,tp]
//--- rank.txt
cleave-decision 2
mesh dp=2,tp=2
batch-axes dp
node "/up/MatMul" dp tp -
parameter "w" [tp] [-,tp] [dp,tp]
//--- step.mlir
onnx.param @w : tensor<64x256xf32> "parameter" {trainable = true}
func.func @final(%x: tensor<8x64xf32>) -> tensor<8x256xf32> {
  %w = onnx.read @w : tensor<64x256xf32>
  %y = onnx.Contract %x, %w {place.at = #place.at<phase = forward>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<8x64xf32>, tensor<64x256xf32>) -> tensor<8x256xf32> loc("/up/MatMul")
  return %y : tensor<8x256xf32>
}
//--- named.mlir
module attributes {place.nodes = ["/up/MatMul"]} {
onnx.param @w : tensor<64x256xf32> "parameter" {trainable = true}
func.func @final(%x: tensor<8x64xf32>) -> tensor<8x256xf32> {
  %w = onnx.read @w : tensor<64x256xf32>
  %y = onnx.Contract %x, %w {place.node = "/up/MatMul", place.at = #place.at<phase = forward>, lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<8x64xf32>, tensor<64x256xf32>) -> tensor<8x256xf32> loc("/up/MatMul")
  return %y : tensor<8x256xf32>
}
}
