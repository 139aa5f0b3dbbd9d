// Scratch that a GPU's library calls may take outside of the arena, at most; the calls of a device share it. The
// compiler writes it in Program.library_workspace_bytes, so it is counted against the device's memory; the driver asks
// the libraries for algorithms that keep to it.
//
//   libraryWorkspace(program, false)    // 32 MiB for a plan of matrix products, 0 for one without library calls
#pragma once
#include "plan/plan.pb.h"
#include "runtime/plan/dtype.h"
#include <algorithm>

namespace cleave::runtime {

// cuBLASLt's own advice for compute capability 9.0 (cuBLAS library documentation, "Workspace"); less before.
constexpr int64_t productWorkspace = int64_t(32) << 20;
// With the channels first: enough for the precomputed indices of implicit products and for Winograd's tiles, not for
// convolutions by FFT, which may want gigabytes. TensorFlow's limit (TF_CUDNN_WORKSPACE_LIMIT_IN_MB) is 4 GiB, Caffe2's
// was 64 MiB.
constexpr int64_t mostConvolutionWorkspace = int64_t(256) << 20;

// In 16 bits with the channels last, cuDNN's engines on tensor cores want no more than 4 MiB for any pass of
// ResNet-50's convolutions of 256 images (cuDNN 9 for an H100, test/unit/cuda/convolution_test.cpp), but where channels
// are no multiple of 16 bytes: then a copy of the tensor with as many, 196 MiB for the images.
inline int64_t convolutionWorkspace(const plan::Convolution &c) {
  if (!c.channels_last()) return mostConvolutionWorkspace;
  const int64_t width = byteSize(c.input().dtype()), step = 16 / width;
  int64_t bytes = width == 2 ? int64_t(64) << 20 : mostConvolutionWorkspace;
  for (const plan::Buffer *buffer : {&c.input(), &c.output()}) {
    const int64_t channels = buffer->shape(buffer->shape_size() - 1), count = elementCount(buffer->shape());
    if (channels % step && channels > 0) bytes += width * (count / channels) * ((channels + step - 1) / step * step);
  }
  return bytes;
}

// The workspace of attention's gradient: D for every row and the sum of the query's gradient in fp32, gradients of keys
// and values for every head where heads share them, and as much again for what the engine wants itself, with 32 MiB for
// small ones; deterministic, the scores' gradients in 16 bits, in whole tiles; forward those 32 MiB.
inline int64_t attentionWorkspace(const plan::Attention &c, bool deterministic) {
  int64_t engine = int64_t(32) << 20;
  if (c.pass() != plan::Attention::BACKWARD) return engine;
  const auto &query = c.query().shape(), &key = c.key().shape();
  int64_t sums = 4 * query[0] * query[1] * query[2] * (1 + query[3]);
  if (query[1] != key[1]) sums += 2 * query[0] * query[1] * key[2] * (key[3] + c.value().shape(3));
  auto tiles = [](int64_t positions) { return (positions + 127) / 128 * 128; };
  if (deterministic) engine += 2 * query[0] * query[1] * tiles(query[2]) * tiles(key[2]);
  return engine + 2 * sums;
}

inline int64_t libraryWorkspace(const plan::Program &program, bool deterministic) {
  int64_t bytes = 0;
  for (const plan::Fragment &fragment : program.fragments())
    for (const plan::Command &command : fragment.commands()) {
      if (command.has_contract()) bytes = std::max(bytes, productWorkspace);
      if (command.has_attention()) bytes = std::max(bytes, attentionWorkspace(command.attention(), deterministic));
      if (command.has_convolution()) bytes = std::max(bytes, convolutionWorkspace(command.convolution()));
    }
  return bytes;
}

} // namespace cleave::runtime
