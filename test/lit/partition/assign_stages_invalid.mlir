// RUN: cleave-opt %s --assign-stages=ranks=0,1 --split-input-file --verify-diagnostics

// expected-error @+1 {{has no functions @accumulate and @final: a pipeline's step accumulates gradients}}
module attributes {dist.mesh = #dist.mesh<"pp=2">} {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
}
// -----
module attributes {dist.mesh = #dist.mesh<"pp=2">} {
  onnx.param @w : tensor<4xf32> "parameter" {trainable = true}
  onnx.param @sum : tensor<4xf32> "accumulator" {trainable = false, of = @w}
  func.func @accumulate(%x: tensor<4xf32>) {
    %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4xf32>
    // expected-error @+1 {{has stage 5 of a pipeline of 2}}
    %y = onnx.Mul %x, %w {place.at = #place.at<phase = forward, stage = 5>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    onnx.write @sum, %y {place.at = #place.at<phase = forward>} : tensor<4xf32>
    return
  }
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
}
// -----
module attributes {dist.mesh = #dist.mesh<"pp=2">} {
  onnx.param @w : tensor<4xf32> "parameter" {trainable = true}
  onnx.param @sum : tensor<4xf32> "accumulator" {trainable = false, of = @w}
  func.func @accumulate(%x: tensor<4xf32>) {
    %w = onnx.read @w {place.at = #place.at<phase = forward>} : tensor<4xf32>
    %y = onnx.Mul %x, %w {place.at = #place.at<phase = forward, stage = 1>} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
    // expected-error @+1 {{does not add to its accumulator}}
    onnx.write @sum, %y {place.at = #place.at<phase = forward>} : tensor<4xf32>
    return
  }
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
}
