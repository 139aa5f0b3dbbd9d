// Words of a shell command, in quotes where they need them.
//
//   shellWord("dp=2,tp=2")    dp=2,tp=2
//   shellWord("*.up=-,tp")    '*.up=-,tp'
#pragma once
#include <string>

namespace cleave::names {

// The text in single quotes: 'a word'.
std::string singleQuoted(const std::string &text);
std::string shellWord(const std::string &word);

} // namespace cleave::names
