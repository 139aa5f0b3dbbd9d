// Text from files (names of nodes and tensors, messages with them) as a terminal or a page may show it. A name can hold
// what a terminal obeys (escape sequences, carriage returns) or what turns the direction of a line.
//
//   printable("a\x1b[2Jb")   // "a\u001b[2Jb"; the same escape is JSON's, so JSON stays what it is
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace cleave::runtime {

// The character at the front and the bytes it has; 0 bytes: this is not UTF-8 (RFC 3629).
std::pair<uint32_t, size_t> characterAt(std::string_view text);
bool isUtf8(std::string_view text);

// Control characters but for newlines and tabs, and those that direct text, as \uXXXX; bytes that are not UTF-8 as
// \xXX.
std::string printable(std::string_view text);

} // namespace cleave::runtime
