// RUN: not cleave-opt %s --recompute=except-last=true 2>&1 | FileCheck %s

// CHECK: has no function @accumulate that all but the last microbatch could run
module {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    %y = onnx.Tanh %x {place.at = #place.at<phase = forward, segment = 0, recompute = true>} : (tensor<4xf32>) -> tensor<4xf32>
    %g = onnx.Mul %y, %y {place.at = #place.at<phase = backward>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    return %g : tensor<4xf32>
  }
}
