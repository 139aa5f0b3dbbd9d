// RUN: cleave-opt %s --propagate-shardings --split-input-file --verify-diagnostics

// expected-error @+1 {{has no attribute 'cleave.mesh': run apply-decision first}}
module {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
}
// -----
// expected-error @+1 {{cleave.mesh}}
module attributes {cleave.mesh = "dp=none", cleave.zero_axes = [], cleave.batch_axes = []} {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> { return %x : tensor<4xf32> }
}
// -----
module attributes {cleave.mesh = "dp=2", cleave.zero_axes = [], cleave.batch_axes = []} {
  func.func @final() -> tensor<4xf32> {
    // expected-error @+1 {{reads a persistent tensor that does not exist: @w}}
    %w = onnx.read @w : tensor<4xf32>
    return %w : tensor<4xf32>
  }
}
// -----
module attributes {cleave.mesh = "dp=2", cleave.zero_axes = [], cleave.batch_axes = []} {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @+1 {{writes a persistent tensor that does not exist: @w}}
    onnx.write @w, %x : tensor<4xf32>
    return %x : tensor<4xf32>
  }
}
