// RUN: not cleave-opt %s --recompute=except-last=true 2>&1 | FileCheck %s

// CHECK: has no function @accumulate that all but the last microbatch could run
module {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = onnx.Tanh %x {cleave.phase = "forward", cleave.recompute} : (tensor<4xf32>) -> tensor<4xf32>
    %g = onnx.Mul %y, %y {cleave.phase = "backward"} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %g : tensor<4xf32>
  }
}
