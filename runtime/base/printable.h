// Text from files (names of nodes and tensors, messages with them) as a terminal or a page may show it. A name can hold
// what a terminal obeys (escape sequences, carriage returns) or what turns the direction of a line.
//
//   printable("a\x1b[2Jb")   // "a\u001b[2Jb"; the same escape is JSON's, so JSON stays what it is
#pragma once
#include <string>
#include <string_view>

namespace cleave::runtime {

// Control characters but for newlines and tabs, and those that direct text, as \uXXXX; bytes that are not UTF-8 as
// \xXX.
std::string printable(std::string_view text);

} // namespace cleave::runtime
