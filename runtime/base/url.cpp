#include "runtime/base/url.h"
#include <algorithm>
#include <cctype>

namespace cleave::runtime {

bool isUrl(std::string_view path) {
  const size_t end = path.find("://");
  if (end == std::string_view::npos || end == 0) return false;
  return std::ranges::all_of(path.substr(0, end), [](unsigned char c) {
    return std::isalnum(c) || c == '+' || c == '-' || c == '.' || c == ':';
  });
}

Status refuseUrl(const std::string &path) {
  if (!isUrl(path)) return Status::ok();
  return inputError(path + ": is a URL, and this is for files: cleave.Trainer and cleave.fit in Python take URLs "
                           "(docs/guide/object-stores.md), or give the path of a copy");
}

} // namespace cleave::runtime
