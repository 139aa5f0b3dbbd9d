#include "runtime/base/names/module_scope.h"
#include <algorithm>

namespace cleave::names {

std::vector<std::string> scopeOf(const std::string &node) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= node.size();) {
    const size_t end = std::min(node.find('/', begin), node.size());
    if (end > begin) parts.push_back(node.substr(begin, end - begin));
    begin = end + 1;
  }
  if (!parts.empty()) parts.pop_back();
  return parts;
}

std::string moduleAround(const std::string &joined, const std::string &last, const std::string &part) {
  if (!last.empty() && part.starts_with(last + ".")) return joined.substr(0, joined.size() - last.size());
  return joined.empty() ? "" : joined + ".";
}

std::string moduleOf(const std::string &node) {
  std::string joined, last;
  if (!node.starts_with('/')) return joined;
  for (const std::string &part : scopeOf(node)) {
    joined = moduleAround(joined, last, part) + part;
    last = part;
  }
  return joined;
}

} // namespace cleave::names
