#include "runtime/base/names/shell_word.h"
#include <algorithm>
#include <cctype>
#include <string_view>

namespace cleave::names {

std::string singleQuoted(const std::string &text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? "'\\''" : std::string(1, c);
  return out + "'";
}

std::string shellWord(const std::string &word) {
  const bool isPlain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) || std::string_view("_-./=:,+@%").find(char(c)) != std::string_view::npos;
  });
  return isPlain ? word : singleQuoted(word);
}

} // namespace cleave::names
