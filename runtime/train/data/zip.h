// The entries of a zip archive (as numpy writes .npz): stored ones in place, deflated ones inflated and checked. Zip64.
#pragma once
#include "runtime/base/status.h"
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cleave::runtime {

struct ZipEntry {
  std::string name;
  std::string_view stored;             // inside `archive`
  std::optional<std::string> inflated; // of a deflated entry
};

// Errors name `path`: not a zip archive, cut off, a checksum that differs, encryption, other compression methods.
Result<std::vector<ZipEntry>> readZip(std::string_view archive, const std::string &path);

} // namespace cleave::runtime
