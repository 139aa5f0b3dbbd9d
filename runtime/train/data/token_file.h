// One file of token numbers, whoever wrote it. By content, or by the file beside it:
//
//     a .bin of llm.c        256 int32 first: 20240520, 1, tokens (uint16) or 20240801, 7, tokens (uint32)
//     .bin and .idx          Megatron-LM's MMapIndexedDataset; `path` is the .bin, or what both names begin with
//     .npy                   one row of integers
//     anything else          the numbers alone, of `data.dtype`
#pragma once
#include "runtime/train/data/array.h"
#include <optional>

namespace cleave::runtime {

struct TokenFile {
  std::string path;
  Array tokens;                                                 // one row of integers
  Array whole = {};                                             // the same, where `tokens` are the first of them
  std::optional<std::vector<int64_t>> documents = std::nullopt; // where each begins, and the end of the last
};

// `dtype` as of the recipe, or "". `withDocuments`: those of an .idx are read. Errors name the file: damaged, cut off,
// of another version, of another type than `dtype` says.
Result<TokenFile> openTokenFile(const std::string &path, const std::string &dtype, bool withDocuments);

} // namespace cleave::runtime
