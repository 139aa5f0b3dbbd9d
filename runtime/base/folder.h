// What is in a folder, or why that cannot be told: a folder that cannot be read is not an empty one.
#pragma once
#include "runtime/base/status.h"
#include <filesystem>
#include <string>
#include <vector>

namespace cleave::runtime {

// None where there is no folder. Error: "s: cannot be listed: Permission denied".
Result<std::vector<std::filesystem::path>> entriesOf(const std::filesystem::path &folder);
// not_found where there is nothing of this name. Error: "s/a: cannot be read: Input/output error".
Result<std::filesystem::file_type> fileTypeOf(const std::filesystem::path &path);

// What matches a pattern with `*`, `?` and `[...]`, in no order.
std::vector<std::string> matchesOf(const std::string &pattern);

} // namespace cleave::runtime
