// Which of cuBLASLt's algorithms computes which product, and the file that keeps it from run to run: one for a kind of
// GPU and a version of the library, since an algorithm means nothing to others.
//
//   std::string path = choicesPath("NVIDIA H100 80GB HBM3", 130001);
//                                 // ~/.cache/cleave/cublaslt-130001-NVIDIA-H100-80GB-HBM3.txt, or in XDG_CACHE_HOME
//   Result<ProductChoices> known = readChoices(path);     // none, if there is no file yet
//   Status s = writeChoices(path, choices);
#pragma once
#include "runtime/base/status.h"
#include "runtime/engine/device/cuda/api/cublas_lt.h"
#include <map>
#include <string>

namespace cleave::runtime::cuda {

struct ProductChoice {
  MatmulAlgorithm algorithm{};
  uint64_t workspaceBytes = 0;
  double microseconds = 0; // 0: not timed
};
using ProductChoices = std::map<std::string, ProductChoice>; // by Product::key()

std::string choicesPath(const std::string &gpu, size_t libraryVersion); // empty: neither HOME nor XDG_CACHE_HOME is set
// Error: the file is damaged, or cannot be read.
Result<ProductChoices> readChoices(const std::string &path);
Status writeChoices(const std::string &path, const ProductChoices &choices);

} // namespace cleave::runtime::cuda
