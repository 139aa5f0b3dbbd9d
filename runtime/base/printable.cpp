#include "runtime/base/printable.h"
#include <fmt/format.h>

namespace cleave::runtime {

std::pair<uint32_t, size_t> characterAt(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return {first, 1};
  const size_t bytes = first >= 0xf5 ? 0 : first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : first >= 0xc2 ? 2 : 0;
  if (bytes == 0 || text.size() < bytes) return {0, 0};
  uint32_t code = first & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xc0) != 0x80) return {0, 0};
    code = code << 6 | (byte & 0x3f);
  }
  constexpr uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < least[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {0, 0};
  return {code, bytes};
}

bool isUtf8(std::string_view text) {
  while (!text.empty()) {
    const size_t bytes = characterAt(text).second;
    if (bytes == 0) return false;
    text.remove_prefix(bytes);
  }
  return true;
}

namespace {

// Unicode Standard, chapter 23.1 (control codes) and annex 9 (directional formatting characters, line separators).
bool isObeyed(uint32_t code) {
  if (code < 0x20) return code != '\n' && code != '\t';
  return (code >= 0x7f && code < 0xa0) || code == 0x61c || code == 0x200e || code == 0x200f ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069);
}

} // namespace

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const auto [code, bytes] = characterAt(text);
    if (bytes == 0)
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    else if (isObeyed(code))
      out += fmt::format("\\u{:04x}", code);
    else
      out += text.substr(0, bytes);
    text.remove_prefix(std::max<size_t>(bytes, 1));
  }
  return out;
}

} // namespace cleave::runtime
