// In which order the tensors of convolutions lie: [N, C, spatial], as ONNX has them, or with the channels last, as the
// libraries' kernels want them. A model is imported, trained, planned and split with channels first; these passes run
// on the local functions of the split, so that the reference graph and the planner know nothing of them.
//
//   %y = onnx.Conv %x, %w                          %xl = onnx.Transpose %x {perm = [0, 2, 3, 1]}
//   %r = onnx.Relu %y                       ->     %wl = onnx.Transpose %w {perm = [0, 2, 3, 1]}
//   %z = onnx.Conv %r, %v                          %yl = onnx.Conv %xl, %wl {channels_last, weight_channels_last}
//                                                  %rl = onnx.Relu %yl
//
// Transposes stay at the borders: of images, of weights and of their gradients.
#pragma once
#include "mlir/Pass/Pass.h"
#include <memory>

namespace cleave::layout {

// Which convolutions want their channels last.
enum class Convolutions {
  Float,  // of every element type: CPUs, where oneDNN's kernels are as fast on either order and the other is reordered
  Low,    // of 16 bits: GPUs, where the engines with tensor cores transpose tensors that have their channels first
  Rounded // of 16 and of 32 bits: GPUs whose products of fp32 round to TF32, on the same engines
};

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "compiler/layout/Passes.h.inc"

} // namespace cleave::layout
