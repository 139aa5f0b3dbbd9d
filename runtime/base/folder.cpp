#include "runtime/base/folder.h"
#include <fmt/format.h>
#include <glob.h>

namespace fs = std::filesystem;

namespace cleave::runtime {

Result<std::vector<fs::path>> entriesOf(const fs::path &folder) {
  std::vector<fs::path> found;
  std::error_code failure;
  fs::directory_iterator entries(folder, failure);
  for (; !failure && entries != fs::directory_iterator(); entries.increment(failure)) found.push_back(entries->path());
  if (failure == std::errc::no_such_file_or_directory) return found;
  if (failure) return inputError(fmt::format("{}: cannot be listed: {}", folder.string(), failure.message()));
  return found;
}

Result<fs::file_type> fileTypeOf(const fs::path &path) {
  std::error_code failure;
  const fs::file_type type = fs::status(path, failure).type();
  if (type == fs::file_type::none)
    return inputError(fmt::format("{}: cannot be read: {}", path.string(), failure.message()));
  return type;
}

std::vector<std::string> matchesOf(const std::string &pattern) {
  std::vector<std::string> found;
  glob_t matches = {};
  if (::glob(pattern.c_str(), GLOB_NOSORT, nullptr, &matches) == 0)
    found.assign(matches.gl_pathv, matches.gl_pathv + matches.gl_pathc);
  ::globfree(&matches);
  return found;
}

} // namespace cleave::runtime
