// RUN: cleave-opt %s --propagate-shardings --split-input-file --verify-diagnostics

// expected-error @+1 {{has no attribute 'dist.mesh': run apply-decision first}}
module {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
}
// -----
module attributes {dist.mesh = #dist.mesh<"dp=2">, dist.zero_axes = #dist.axes<[]>, dist.batch_axes = #dist.axes<[]>} {
  func.func @final() -> tensor<4xf32> {
    // expected-error @+1 {{reads a persistent tensor that does not exist: @w}}
    %w = onnx.read @w : tensor<4xf32>
    return %w : tensor<4xf32>
  }
}
// -----
module attributes {dist.mesh = #dist.mesh<"dp=2">, dist.zero_axes = #dist.axes<[]>, dist.batch_axes = #dist.axes<[]>} {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @+1 {{writes a persistent tensor that does not exist: @w}}
    onnx.write @w, %x : tensor<4xf32>
    return %x : tensor<4xf32>
  }
}
