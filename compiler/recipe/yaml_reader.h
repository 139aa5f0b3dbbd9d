// Reads one YAML map key by key: types and ranges are checked, every fault says where it stands, and what is left over
// at the end is an unknown key. Faults are thrown inside this folder and become a Status at its border.
//
//     MapReader optimizer = recipe.map("optimizer");
//     optimizer.read("eps", eps, {.range = {.above = 0}}); // gpt.yaml:7: 'optimizer.eps' must be above 0, is -1
//     optimizer.finish(); // gpt.yaml:8: unknown key 'optimizer.epz'; did you mean 'eps'?
#pragma once
#include "compiler/recipe/ranges.h"
#include <algorithm>
#include <set>
#include <yaml-cpp/yaml.h>

namespace cleave::recipe {

struct Fault {
  std::string message;
};

// The data that all readers of one recipe share.
struct Source {
  Recipe &recipe;                                // read so far; its file, `lines` and `given` are filled
  std::string path;                              // relative paths start at its folder; "": at the current one
  std::map<std::string, std::string> overridden; // dotted key -> "--set optimizer.lr=1"

  std::string where(const std::string &key, const YAML::Node &node) const;
};

// Of letters, digits, '_' and '-', as part of a metric's key.
bool isPlainName(const std::string &name);

class MapReader {
public:
  // `path` is the dotted key of the map, "" for the whole recipe.
  MapReader(Source &source, std::string path, YAML::Node node);

  bool has(const std::string &key);     // there and not null
  bool isNull(const std::string &key);  // there, and null
  bool isEmpty(const std::string &key); // not there, or nothing is in it
  YAML::Node node(const std::string &key);
  std::vector<std::string> keys() const;

  // Each leaves `value` alone when the key is not there.
  void read(const std::string &key, double &value, const Rule &rule = {});
  void read(const std::string &key, int64_t &value, const Rule &rule = {});
  void read(const std::string &key, bool &value, const Rule & = {});
  void read(const std::string &key, std::string &value, const Rule &rule = {});
  void read(const std::string &key, std::vector<std::string> &value, const Rule &rule = {});
  void read(const std::string &key, std::vector<int64_t> &value, const Rule & = {});
  void read(const std::string &key, std::vector<double> &value, const Rule &rule = {});
  template <HasWords Kind> void read(const std::string &key, Kind &value, const Rule & = {}) {
    if (!has(key)) return;
    constexpr auto words = wordsOf(Kind());
    const std::string given = scalar(key, "one word");
    const auto found = std::ranges::find(words, given);
    if (found == words.end()) unknownWord(key, given, {words.begin(), words.end()});
    value = static_cast<Kind>(found - words.begin());
  }
  void unknownWord
      [[noreturn]] (const std::string &key, const std::string &given, const std::vector<std::string> &known);
  MapReader map(const std::string &key);
  MapReader entry(const std::string &key, YAML::Node node) { return MapReader(source, dotted(key), node); } // of a list
  std::vector<MapReader> list(const std::string &key, const Rule &rule);                                    // of maps
  // Fails at a key that the kind has no use for (keys.h): numbers would be others than the person means.
  void checkUses(const std::string &kind, const std::string &except = "");

  // The line of the key, or of its map where it is left out.
  std::string where(const std::string &key) {
    return source.where(dotted(key), has(key) || path.empty() ? node(key) : self);
  }
  std::string dotted(const std::string &key) const { return path.empty() ? key : path + "." + key; }
  [[noreturn]] void fail(const std::string &key, const std::string &message);

  // Relative paths start at the recipe's folder; if nothing is there, at the current folder if something is there. A
  // URL stays.
  std::string absolute(const std::string &path) const;
  Recipe &recipe() { return source.recipe; }

  // Fails if a key was never asked for.
  void finish();

private:
  std::string scalar(const std::string &key, const char *expected);

  Source &source;
  std::string path;
  YAML::Node self;
  std::map<std::string, YAML::Node> entries;
  std::vector<std::string> known; // asked for, in that order
  std::set<std::string> asked;    // the same
};

} // namespace cleave::recipe
