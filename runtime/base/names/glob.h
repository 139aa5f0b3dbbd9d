// How a person names tensors, parameters and nodes: globs, and what is suggested where none fits.
//
//     matchGlob("*.bias", "blocks.0.c_proj.bias")
//     suggestion("*.wieght", {"0.bias", "0.weight"})      // "; the nearest name is '0.weight'"
#pragma once
#include <string>
#include <vector>

namespace cleave::names {

// Shell-like match of the whole name: '*' any run of characters (also '.' and '/'), '?' one character.
bool matchGlob(const std::string &pattern, const std::string &name);
// Has it a '*' or '?'?
bool isGlob(const std::string &text);

// The candidate nearest to a word or glob by edit distance, "" if none is near.
std::string nearest(const std::string &wordOrGlob, const std::vector<std::string> &candidates);
// The same as the end of a sentence that says what was not found: "; did you mean 'X'?", or "".
std::string suggestion(const std::string &wordOrGlob, const std::vector<std::string> &candidates);

} // namespace cleave::names
