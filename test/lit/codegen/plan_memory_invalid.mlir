// RUN: cleave-opt %s --plan-memory --split-input-file --verify-diagnostics

module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  func.func @final() -> tensor<64xf32> {
    // expected-error @+1 {{names no onnx.param}}
    %w = onnx.read @w : tensor<64xf32>
    return %w : tensor<64xf32>
  }
}
// -----
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  onnx.param @w : tensor<64xf32> "parameter" {trainable = true, sharding = #dist.sharding<"[{dp}]">}
  func.func @final() -> tensor<64xf32> {
    // expected-error @+1 {{reads 256 bytes of a parameter whose part on this device has 128}}
    %w = onnx.read @w : tensor<64xf32>
    return %w : tensor<64xf32>
  }
}
// -----
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  // expected-error @+1 {{cannot be split over the mesh}}
  onnx.param @w : tensor<63xf32> "parameter" {trainable = true, sharding = #dist.sharding<"[{dp}]">}
  func.func @final(%x: tensor<64xf32>) -> tensor<64xf32> { return %x : tensor<64xf32> }
}
// -----
module attributes {dist.mesh = #dist.mesh<"dp=2">} {
  // expected-error @+1 {{has the role 'weight', which is none of parameter}}
  onnx.param @w : tensor<64xf32> "weight" {trainable = true}
  func.func @final(%x: tensor<64xf32>) -> tensor<64xf32> { return %x : tensor<64xf32> }
}
