// RUN: not cleave-opt %s --split-input-file --lower-kernels-to-linalg 2>&1 | FileCheck %s
// RUN: not cleave-opt %s --split-input-file --schedule-kernels 2>&1 | FileCheck %s --check-prefix=SCHEDULE

// CHECK: its ops cannot share a loop nest; FormClusters must not outline them together
// SCHEDULE: is not in linalg form; run lower-kernels-to-linalg first
module {
  plan.kernel @k(%a: tensor<4x8xf32>, %b: tensor<3xf32>) {
    %x = onnx.Tanh %a : (tensor<4x8xf32>) -> tensor<4x8xf32>
    %y = onnx.Tanh %b : (tensor<3xf32>) -> tensor<3xf32>
    plan.yield %x, %y : tensor<4x8xf32>, tensor<3xf32>
  }
  func.func @final(%a: tensor<4x8xf32>, %b: tensor<3xf32>) -> (tensor<4x8xf32>, tensor<3xf32>) {
    %x, %y = plan.launch @k(%a, %b) {extent = 32 : i64, grain = 1 : i64, inplace = array<i64>, scalars = []} : (tensor<4x8xf32>, tensor<3xf32>) -> (tensor<4x8xf32>, tensor<3xf32>)
    return %x, %y : tensor<4x8xf32>, tensor<3xf32>
  }
}
