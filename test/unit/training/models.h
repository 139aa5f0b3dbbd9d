// Small modules as text, as the normalize phase leaves them.
#pragma once
#include <string>

namespace cleave::training::testing {

// logits = tanh(x w0) w1 + bias, x [batch,4], logits [batch,3]
inline std::string classifier(int batch) {
  std::string b = std::to_string(batch);
  return R"(
onnx.param @w0 : tensor<4x5xf32> "parameter" {trainable = true, used_by = "hidden"}
onnx.param @w1 : tensor<5x3xf32> "parameter" {trainable = true, used_by = "head"}
onnx.param @bias : tensor<3xf32> "parameter" {trainable = true, used_by = "head"}
func.func @model(%x: tensor<)" +
         b + R"(x4xf32> {onnx.name = "x"}) -> (tensor<)" + b + R"(x3xf32> {onnx.name = "logits"}) {
  %w0 = onnx.read @w0 : tensor<4x5xf32>
  %w1 = onnx.read @w1 : tensor<5x3xf32>
  %bias = onnx.read @bias : tensor<3xf32>
  %0 = onnx.Contract %x, %w0 {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<)" +
         b + R"(x4xf32>, tensor<4x5xf32>) -> tensor<)" + b + R"(x5xf32>
  %1 = onnx.Tanh %0 : (tensor<)" +
         b + R"(x5xf32>) -> tensor<)" + b + R"(x5xf32>
  %2 = onnx.Contract %1, %w1 {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<)" +
         b + R"(x5xf32>, tensor<5x3xf32>) -> tensor<)" + b + R"(x3xf32>
  %3 = onnx.Broadcast %bias {shape = array<i64: )" +
         b + R"(, 3>, dims = array<i64: 1>} : (tensor<3xf32>) -> tensor<)" + b + R"(x3xf32>
  %4 = onnx.Add %2, %3 : (tensor<)" +
         b + R"(x3xf32>, tensor<)" + b + R"(x3xf32>) -> tensor<)" + b + R"(x3xf32>
  return %4 : tensor<)" +
         b + R"(x3xf32>
})";
}

// The output is the parameter itself: what a loss or an optimizer does to p is easy to compute by hand.
inline std::string identity(const std::string &shape) {
  return "onnx.param @p : tensor<" + shape +
         "xf32> \"parameter\" {trainable = true}\n"
         "func.func @model() -> (tensor<" +
         shape +
         "xf32> {onnx.name = \"y\"}) {\n"
         "  %p = onnx.read @p : tensor<" +
         shape + "xf32>\n  return %p : tensor<" + shape + "xf32>\n}";
}

} // namespace cleave::training::testing
