// The keys of a recipe with their meaning, from the rows of schema.h: docs/reference/recipe.md is written from them, and
// the reader takes no key that has no row.
//
//     isKey("optimizer.lr"), isKey("dims.sequence")     // true, by "optimizer.lr" and "dims.*"
//     useFault("loss.delta", "mse")                     // "'loss.delta' is for huber, this is mse; leave it out"
#pragma once
#include <string>
#include <vector>

namespace cleave::recipe {

struct KeyRow {
  std::string path;     // dotted; "dims.*": any name below `dims`
  const char *meaning;  // markdown
  const char *fallback; // where the key is left out; "": nothing to say
  const char *kinds;    // of losses, optimizers, schedules or distributions that use it: "sgd muon"; "": all
};

const std::vector<KeyRow> &keys();
bool isKey(const std::string &path);

// What is wrong with a key beside this `kind`; "" where the kind uses it.
std::string useFault(const std::string &path, const std::string &kind);

// The keys as a table in markdown, for `cleave inspect --keys recipe`.
std::string documentKeys();

} // namespace cleave::recipe
