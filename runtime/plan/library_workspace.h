// Scratch that a GPU's library calls may take outside of the arena, at most; the calls of a device share it. The
// compiler writes it in Program.library_workspace_bytes, so it is counted against the device's memory; the driver asks
// the libraries for algorithms that keep to it.
//
//   libraryWorkspace(program)    // 32 MiB for a plan of matrix products, 0 for one without library calls
#pragma once
#include "plan/plan.pb.h"
#include <algorithm>

namespace cleave::runtime {

// cuBLASLt's own advice for compute capability 9.0 (cuBLAS library documentation, "Workspace"); less before.
constexpr int64_t productWorkspace = int64_t(32) << 20;
// Enough for the precomputed indices of implicit products and for Winograd's tiles, not for convolutions by FFT, which
// may want gigabytes. TensorFlow's limit (TF_CUDNN_WORKSPACE_LIMIT_IN_MB) is 4 GiB, Caffe2's was 64 MiB.
constexpr int64_t convolutionWorkspace = int64_t(256) << 20;

// The workspace of attention's gradient: D for every row and the sum of the query's gradient in fp32, gradients of keys
// and values for every head where heads share them, and as much again for what the engine wants itself, with 32 MiB for
// small ones; forward those 32 MiB.
inline int64_t attentionWorkspace(const plan::Attention &c) {
  int64_t engine = int64_t(32) << 20;
  if (c.pass() != plan::Attention::BACKWARD) return engine;
  const auto &query = c.query().shape(), &key = c.key().shape();
  int64_t sums = 4 * query[0] * query[1] * query[2] * (1 + query[3]);
  if (query[1] != key[1]) sums += 2 * query[0] * query[1] * key[2] * (key[3] + c.value().shape(3));
  return engine + 2 * sums;
}

inline int64_t libraryWorkspace(const plan::Program &program) {
  int64_t bytes = 0;
  for (const plan::Fragment &fragment : program.fragments())
    for (const plan::Command &command : fragment.commands()) {
      if (command.has_contract()) bytes = std::max(bytes, productWorkspace);
      if (command.has_attention()) bytes = std::max(bytes, attentionWorkspace(command.attention()));
      if (command.has_convolution()) bytes = std::max(bytes, convolutionWorkspace);
    }
  return bytes;
}

} // namespace cleave::runtime
