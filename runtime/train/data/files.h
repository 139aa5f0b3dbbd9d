// The files that `data.path` names: each a file, a folder or a glob.
//
//     filesOf({"a.bin", "shards"}, {".bin"})      // a.bin, shards/0.bin, shards/1.bin
//     filesOf({"shards/*.bin"}, {".bin"})         // shards/0.bin, shards/1.bin
#pragma once
#include "runtime/base/status.h"
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cleave::runtime {

struct FileChoice {
  std::vector<std::string> endings; // of the files that a folder stands for
  bool takesFolders = false;        // a folder that has none of them is itself taken
};

// In the order of `paths`; those of one folder or glob by name, sorted as bytes. A path of no file is returned as it
// is, for who opens it. Errors: a folder without such a file, a glob that nothing matches.
Result<std::vector<std::string>> filesOf(const std::vector<std::string> &paths, const FileChoice &choice);

// Bytes of the files that the paths name, or that lie in their folders; none where one of the paths is of nothing.
// Error: a path that cannot be looked at.
Result<std::optional<uintmax_t>> fileBytes(const std::vector<std::string> &paths);

} // namespace cleave::runtime
