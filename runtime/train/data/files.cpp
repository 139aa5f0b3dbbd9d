#include "runtime/train/data/files.h"
#include "runtime/base/folder.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace fs = std::filesystem;

namespace cleave::runtime {
namespace {

bool isGlob(const std::string &path) {
  std::error_code failure;
  return path.find_first_of("*?[") != std::string::npos && !fs::exists(path, failure);
}

} // namespace

Result<std::vector<std::string>> filesOf(const std::vector<std::string> &paths, const FileChoice &choice) {
  std::vector<std::string> files;
  for (const std::string &path : paths) {
    std::vector<std::string> found;
    if (isGlob(path)) {
      found = matchesOf(path);
      if (found.empty()) return inputError(path + ": no file matches");
    } else {
      CLEAVE_ASSIGN_OR_RETURN(fs::file_type type, fileTypeOf(path));
      if (type != fs::file_type::directory) {
        files.push_back(path);
        continue;
      }
      CLEAVE_ASSIGN_OR_RETURN(std::vector<fs::path> entries, entriesOf(path));
      for (const fs::path &entry : entries)
        if (std::ranges::count(choice.endings, entry.extension().string()) > 0) found.push_back(entry.string());
      if (found.empty() && choice.takesFolders) found.push_back(path);
      if (found.empty())
        return inputError(fmt::format("{}: the folder holds no {}", path, fmt::join(choice.endings, " or ")));
    }
    std::ranges::sort(found);
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

Result<std::optional<uintmax_t>> fileBytes(const std::vector<std::string> &paths) {
  uintmax_t bytes = 0;
  auto add = [&](const fs::path &file) {
    std::error_code failure;
    if (const uintmax_t size = fs::file_size(file, failure); !failure) bytes += size;
  };
  for (const std::string &path : paths) {
    CLEAVE_ASSIGN_OR_RETURN(fs::file_type type, fileTypeOf(path));
    std::vector<std::string> matches;
    if (type == fs::file_type::not_found && isGlob(path)) matches = matchesOf(path);
    if (type == fs::file_type::not_found && matches.empty()) return std::optional<uintmax_t>();
    for (const std::string &match : matches) add(match);
    if (type == fs::file_type::regular) add(path);
    if (type != fs::file_type::directory) continue;
    CLEAVE_ASSIGN_OR_RETURN(std::vector<fs::path> entries, entriesOf(path));
    std::ranges::for_each(entries, add);
  }
  return std::optional(bytes);
}

} // namespace cleave::runtime
