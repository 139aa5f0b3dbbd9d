// Small models as the normalize phase leaves them, for splits of whole training steps.
#pragma once

namespace cleave::partition::testing {

// A transformer block with a vocabulary of 16, width 8, 2 heads of 4, sequence 4; the head is tied to the embedding.
// 4 samples (a microbatch).
inline const char *transformer = R"(
onnx.param @wte : tensor<16x8xf32> "parameter" {trainable = true}
onnx.param @wpe : tensor<4x8xf32> "parameter" {trainable = true}
onnx.param @gamma : tensor<8xf32> "parameter" {trainable = true}
onnx.param @wq : tensor<8x2x4xf32> "parameter" {trainable = true}
onnx.param @wk : tensor<8x2x4xf32> "parameter" {trainable = true}
onnx.param @wv : tensor<8x2x4xf32> "parameter" {trainable = true}
onnx.param @wo : tensor<2x4x8xf32> "parameter" {trainable = true}
onnx.param @up : tensor<8x16xf32> "parameter" {trainable = true}
onnx.param @upb : tensor<16xf32> "parameter" {trainable = true}
onnx.param @down : tensor<16x8xf32> "parameter" {trainable = true}
onnx.param @downb : tensor<8xf32> "parameter" {trainable = true}
func.func @model(%ids: tensor<4x4xi64> {onnx.name = "ids"}) -> (tensor<4x4x16xf32> {onnx.name = "logits"}) {
  %wte = onnx.read @wte : tensor<16x8xf32>
  %wpe = onnx.read @wpe : tensor<4x8xf32>
  %e = onnx.Gather %wte, %ids {axis = 0 : i64} : (tensor<16x8xf32>, tensor<4x4xi64>) -> tensor<4x4x8xf32>
  %p = onnx.Broadcast %wpe {shape = array<i64: 4, 4, 8>, dims = array<i64: 1, 2>} : (tensor<4x8xf32>) -> tensor<4x4x8xf32>
  %x = onnx.Add %e, %p : (tensor<4x4x8xf32>, tensor<4x4x8xf32>) -> tensor<4x4x8xf32>
  %sq = onnx.Mul %x, %x : (tensor<4x4x8xf32>, tensor<4x4x8xf32>) -> tensor<4x4x8xf32>
  %ms = onnx.ReduceSum %sq {axes = array<i64: 2>} : (tensor<4x4x8xf32>) -> tensor<4x4xf32>
  %eps = onnx.Constant dense<0.1> : tensor<4x4xf32>
  %mse = onnx.Add %ms, %eps : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %rs = onnx.Rsqrt %mse : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %rb = onnx.Broadcast %rs {shape = array<i64: 4, 4, 8>, dims = array<i64: 0, 1>} : (tensor<4x4xf32>) -> tensor<4x4x8xf32>
  %n0 = onnx.Mul %x, %rb : (tensor<4x4x8xf32>, tensor<4x4x8xf32>) -> tensor<4x4x8xf32>
  %gamma = onnx.read @gamma : tensor<8xf32>
  %gb = onnx.Broadcast %gamma {shape = array<i64: 4, 4, 8>, dims = array<i64: 2>} : (tensor<8xf32>) -> tensor<4x4x8xf32>
  %n = onnx.Mul %n0, %gb : (tensor<4x4x8xf32>, tensor<4x4x8xf32>) -> tensor<4x4x8xf32>
  %wq = onnx.read @wq : tensor<8x2x4xf32>
  %wk = onnx.read @wk : tensor<8x2x4xf32>
  %wv = onnx.read @wv : tensor<8x2x4xf32>
  %wo = onnx.read @wo : tensor<2x4x8xf32>
  %q = onnx.Contract %n, %wq {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 2, 3, 4>, result_indices = array<i64: 0, 3, 1, 4>} : (tensor<4x4x8xf32>, tensor<8x2x4xf32>) -> tensor<4x2x4x4xf32>
  %k = onnx.Contract %n, %wk {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 2, 3, 4>, result_indices = array<i64: 0, 3, 1, 4>} : (tensor<4x4x8xf32>, tensor<8x2x4xf32>) -> tensor<4x2x4x4xf32>
  %v = onnx.Contract %n, %wv {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 2, 3, 4>, result_indices = array<i64: 0, 3, 1, 4>} : (tensor<4x4x8xf32>, tensor<8x2x4xf32>) -> tensor<4x2x4x4xf32>
  %s = onnx.Contract %q, %k {lhs_indices = array<i64: 0, 1, 2, 3>, rhs_indices = array<i64: 0, 1, 4, 3>, result_indices = array<i64: 0, 1, 2, 4>} : (tensor<4x2x4x4xf32>, tensor<4x2x4x4xf32>) -> tensor<4x2x4x4xf32>
  %row = onnx.Iota {type = tensor<4x4xi64>, dim = 0 : i64} : () -> tensor<4x4xi64>
  %col = onnx.Iota {type = tensor<4x4xi64>, dim = 1 : i64} : () -> tensor<4x4xi64>
  %past = onnx.LessOrEqual %col, %row : (tensor<4x4xi64>, tensor<4x4xi64>) -> tensor<4x4xi1>
  %mask = onnx.Broadcast %past {shape = array<i64: 4, 2, 4, 4>, dims = array<i64: 2, 3>} : (tensor<4x4xi1>) -> tensor<4x2x4x4xi1>
  %low = onnx.Constant dense<-1.0e+9> : tensor<4x2x4x4xf32>
  %ms2 = onnx.Where %mask, %s, %low : (tensor<4x2x4x4xi1>, tensor<4x2x4x4xf32>, tensor<4x2x4x4xf32>) -> tensor<4x2x4x4xf32>
  %max = onnx.ReduceMax %ms2 {axes = array<i64: 3>} : (tensor<4x2x4x4xf32>) -> tensor<4x2x4xf32>
  %stop = onnx.StopGradient %max : (tensor<4x2x4xf32>) -> tensor<4x2x4xf32>
  %maxb = onnx.Broadcast %stop {shape = array<i64: 4, 2, 4, 4>, dims = array<i64: 0, 1, 2>} : (tensor<4x2x4xf32>) -> tensor<4x2x4x4xf32>
  %d = onnx.Sub %ms2, %maxb : (tensor<4x2x4x4xf32>, tensor<4x2x4x4xf32>) -> tensor<4x2x4x4xf32>
  %ex = onnx.Exp %d : (tensor<4x2x4x4xf32>) -> tensor<4x2x4x4xf32>
  %den = onnx.ReduceSum %ex {axes = array<i64: 3>} : (tensor<4x2x4x4xf32>) -> tensor<4x2x4xf32>
  %denb = onnx.Broadcast %den {shape = array<i64: 4, 2, 4, 4>, dims = array<i64: 0, 1, 2>} : (tensor<4x2x4xf32>) -> tensor<4x2x4x4xf32>
  %pr = onnx.Div %ex, %denb : (tensor<4x2x4x4xf32>, tensor<4x2x4x4xf32>) -> tensor<4x2x4x4xf32>
  %o = onnx.Contract %pr, %v {lhs_indices = array<i64: 0, 1, 2, 3>, rhs_indices = array<i64: 0, 1, 3, 4>, result_indices = array<i64: 0, 2, 1, 4>} : (tensor<4x2x4x4xf32>, tensor<4x2x4x4xf32>) -> tensor<4x4x2x4xf32>
  %a = onnx.Contract %o, %wo {lhs_indices = array<i64: 0, 1, 2, 3>, rhs_indices = array<i64: 2, 3, 4>, result_indices = array<i64: 0, 1, 4>} : (tensor<4x4x2x4xf32>, tensor<2x4x8xf32>) -> tensor<4x4x8xf32>
  %x1 = onnx.Add %x, %a : (tensor<4x4x8xf32>, tensor<4x4x8xf32>) -> tensor<4x4x8xf32>
  %up = onnx.read @up : tensor<8x16xf32>
  %upb = onnx.read @upb : tensor<16xf32>
  %down = onnx.read @down : tensor<16x8xf32>
  %downb = onnx.read @downb : tensor<8xf32>
  %h = onnx.Contract %x1, %up {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 2, 3>, result_indices = array<i64: 0, 1, 3>} : (tensor<4x4x8xf32>, tensor<8x16xf32>) -> tensor<4x4x16xf32>
  %hb = onnx.Broadcast %upb {shape = array<i64: 4, 4, 16>, dims = array<i64: 2>} : (tensor<16xf32>) -> tensor<4x4x16xf32>
  %hs = onnx.Add %h, %hb : (tensor<4x4x16xf32>, tensor<4x4x16xf32>) -> tensor<4x4x16xf32>
  %t = onnx.Tanh %hs : (tensor<4x4x16xf32>) -> tensor<4x4x16xf32>
  %y = onnx.Contract %t, %down {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 2, 3>, result_indices = array<i64: 0, 1, 3>} : (tensor<4x4x16xf32>, tensor<16x8xf32>) -> tensor<4x4x8xf32>
  %yb = onnx.Broadcast %downb {shape = array<i64: 4, 4, 8>, dims = array<i64: 2>} : (tensor<8xf32>) -> tensor<4x4x8xf32>
  %ys = onnx.Add %y, %yb : (tensor<4x4x8xf32>, tensor<4x4x8xf32>) -> tensor<4x4x8xf32>
  %x2 = onnx.Add %x1, %ys : (tensor<4x4x8xf32>, tensor<4x4x8xf32>) -> tensor<4x4x8xf32>
  %z = onnx.Contract %x2, %wte {lhs_indices = array<i64: 0, 1, 2>, rhs_indices = array<i64: 3, 2>, result_indices = array<i64: 0, 1, 3>} : (tensor<4x4x8xf32>, tensor<16x8xf32>) -> tensor<4x4x16xf32>
  return %z : tensor<4x4x16xf32>
})";

// Two convolutions, one grouped, batch statistics, pools, a linear head over 8 classes. 4 samples of 2x6x6.
inline const char *convolutional = R"(
onnx.param @w0 : tensor<8x2x3x3xf32> "parameter" {trainable = true}
onnx.param @w1 : tensor<8x4x3x3xf32> "parameter" {trainable = true}
onnx.param @scale : tensor<8xf32> "parameter" {trainable = true}
onnx.param @head : tensor<8x8xf32> "parameter" {trainable = true}
func.func @model(%x: tensor<4x2x6x6xf32> {onnx.name = "x"}) -> (tensor<4x8xf32> {onnx.name = "logits"}) {
  %w0 = onnx.read @w0 : tensor<8x2x3x3xf32>
  %w1 = onnx.read @w1 : tensor<8x4x3x3xf32>
  %scale = onnx.read @scale : tensor<8xf32>
  %head = onnx.read @head : tensor<8x8xf32>
  %a = onnx.Conv %x, %w0 {strides = array<i64: 1, 1>, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 1 : i64} : (tensor<4x2x6x6xf32>, tensor<8x2x3x3xf32>) -> tensor<4x8x6x6xf32>
  %sum = onnx.ReduceSum %a {axes = array<i64: 0, 2, 3>} : (tensor<4x8x6x6xf32>) -> tensor<8xf32>
  %n = onnx.Constant dense<144.0> : tensor<8xf32>
  %mean = onnx.Div %sum, %n : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
  %mb = onnx.Broadcast %mean {shape = array<i64: 4, 8, 6, 6>, dims = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8x6x6xf32>
  %c = onnx.Sub %a, %mb : (tensor<4x8x6x6xf32>, tensor<4x8x6x6xf32>) -> tensor<4x8x6x6xf32>
  %sb = onnx.Broadcast %scale {shape = array<i64: 4, 8, 6, 6>, dims = array<i64: 1>} : (tensor<8xf32>) -> tensor<4x8x6x6xf32>
  %cs = onnx.Mul %c, %sb : (tensor<4x8x6x6xf32>, tensor<4x8x6x6xf32>) -> tensor<4x8x6x6xf32>
  %r = onnx.Relu %cs : (tensor<4x8x6x6xf32>) -> tensor<4x8x6x6xf32>
  %m = onnx.MaxPool %r {kernel = array<i64: 2, 2>, strides = array<i64: 2, 2>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, dilations = array<i64: 1, 1>} : (tensor<4x8x6x6xf32>) -> tensor<4x8x3x3xf32>
  %b = onnx.Conv %m, %w1 {strides = array<i64: 1, 1>, pads_begin = array<i64: 1, 1>, pads_end = array<i64: 1, 1>, dilations = array<i64: 1, 1>, groups = 2 : i64} : (tensor<4x8x3x3xf32>, tensor<8x4x3x3xf32>) -> tensor<4x8x3x3xf32>
  %p = onnx.AveragePool %b {kernel = array<i64: 3, 3>, strides = array<i64: 1, 1>, pads_begin = array<i64: 0, 0>, pads_end = array<i64: 0, 0>, dilations = array<i64: 1, 1>, include_pad = true} : (tensor<4x8x3x3xf32>) -> tensor<4x8x1x1xf32>
  %f = onnx.Reshape %p {shape = array<i64: 4, 8>} : (tensor<4x8x1x1xf32>) -> tensor<4x8xf32>
  %y = onnx.Contract %f, %head {lhs_indices = array<i64: 0, 1>, rhs_indices = array<i64: 1, 2>, result_indices = array<i64: 0, 2>} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
})";

} // namespace cleave::partition::testing
