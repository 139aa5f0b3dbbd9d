// The keys of a recipe with their meaning: docs/reference/recipe.md is written from this table, and the reader takes no
// key that is not in it.
//
//     isKey("optimizer.lr"), isKey("dims.sequence")     // true, by "optimizer.lr" and "dims.*"
#pragma once
#include <span>
#include <string>

namespace cleave::recipe {

struct Key {
  const char *path;     // dotted; "dims.*": any name below `dims`
  const char *meaning;  // markdown
  const char *fallback; // where the key is left out; "": nothing to say
};

std::span<const Key> keys();
bool isKey(const std::string &path);

// The keys as a table in markdown, for `cleave inspect --keys recipe`.
std::string documentKeys();

} // namespace cleave::recipe
