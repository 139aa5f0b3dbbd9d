// RUN: cleave-opt %s --materialize-collectives --split-input-file --verify-diagnostics

module attributes {dist.mesh = #dist.mesh<"dp=2">, dist.zero_axes = #dist.axes<[]>, dist.batch_axes = #dist.axes<[]>} {
  func.func @final(%x: tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @+1 {{has no 'dist.results': run propagate-shardings first}}
    %y = onnx.Tanh %x : (tensor<4xf32>) -> tensor<4xf32>
    return %y : tensor<4xf32>
  }
}
