// RUN: cleave-opt %s --materialize-collectives --split-input-file --verify-diagnostics

module attributes {cleave.mesh = "dp=2", cleave.zero_axes = [], cleave.batch_axes = []} {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @+1 {{has no 'cleave.layout': run propagate-shardings first}}
    %y = onnx.Tanh %x : (tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}
