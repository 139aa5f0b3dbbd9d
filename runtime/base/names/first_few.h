// The beginning of a list in a message.
//
//     firstFew({"a", "b", "c"}, 2)      // "a, b, ... (3 in all)"
#pragma once
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <string>
#include <vector>

namespace cleave::names {

inline std::string firstFew(std::vector<std::string> names, size_t limit, const char *separator = ", ") {
  if (const size_t number = names.size(); number > limit) {
    names.resize(limit);
    names.push_back(fmt::format("... ({} in all)", number));
  }
  return fmt::format("{}", fmt::join(names, separator));
}

// quoted({"a"})    // {"'a'"}
inline std::vector<std::string> quoted(std::vector<std::string> names) {
  for (std::string &name : names) name = fmt::format("'{}'", name);
  return names;
}

} // namespace cleave::names
