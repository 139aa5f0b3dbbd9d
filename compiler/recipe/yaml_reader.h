// Reads one YAML map key by key: types and ranges are checked, every fault says where it stands, and what is left over
// at the end is an unknown key. Faults are thrown inside this folder and become a Status at its border.
//
//     MapReader optimizer = recipe.map("optimizer");
//     optimizer.number("eps", eps, {.above = 0});        // gpt.yaml:7: 'optimizer.eps' must be above 0, is -1
//     optimizer.finish();                                // gpt.yaml:8: unknown key 'optimizer.epz'; did you mean
//     'eps'?
#pragma once
#include "compiler/recipe/ranges.h"
#include "compiler/recipe/words.h"
#include <set>
#include <yaml-cpp/yaml.h>

namespace cleave::recipe {

struct Fault {
  std::string message;
};

// The data that all readers of one recipe share.
struct Source {
  std::string file;                              // for messages
  std::map<std::string, std::string> overridden; // dotted key -> "--set optimizer.lr=1"
  std::map<std::string, std::string> *lines;     // filled: dotted key -> where
  std::set<std::string> *given;                  // filled: dotted keys that have a value

  std::string where(const std::string &key, const YAML::Node &node) const;
};

// Of letters, digits, '_' and '-', as part of a metric's key.
bool isPlainName(const std::string &name);

class MapReader {
public:
  // `path` is the dotted key of the map, "" for the whole recipe.
  MapReader(Source &source, std::string path, YAML::Node node);

  bool has(const std::string &key);    // there and not null
  bool isNull(const std::string &key); // there, and null
  YAML::Node node(const std::string &key);
  std::vector<std::string> keys() const;

  // Each leaves `value` alone when the key is not there.
  void number(const std::string &key, double &value, Range range = {});
  template <typename Owner> void numbersOf(Owner &owner, std::span<const RangedNumber<Owner>> all) {
    for (const RangedNumber<Owner> &one : all) number(one.key, owner.*one.member, one.range);
  }
  void integer(const std::string &key, int64_t &value, Range range = {});
  void boolean(const std::string &key, bool &value);
  void text(const std::string &key, std::string &value);
  void texts(const std::string &key, std::vector<std::string> &value);
  void integers(const std::string &key, std::vector<int64_t> &value);
  void numbers(const std::string &key, std::vector<double> &value, Range range = {});
  template <typename Kind> void word(const std::string &key, Kind &value) {
    if (!has(key)) return;
    std::string given = scalar(key, "one word");
    std::vector<std::string> known;
    for (const Word<Kind> &entry : words<Kind>()) {
      if (given == entry.word) {
        value = entry.kind;
        return;
      }
      known.push_back(entry.word);
    }
    unknownWord(key, given, known);
  }
  void unknownWord
      [[noreturn]] (const std::string &key, const std::string &given, const std::vector<std::string> &known);
  MapReader map(const std::string &key);
  // Fails at a key that the kind has no use for (keys.h): numbers would be others than the person means.
  void checkUses(const std::string &kind, const std::string &except = "");

  // The line of the key, or of its map where it is left out.
  std::string where(const std::string &key) {
    return source.where(dotted(key), has(key) || path.empty() ? node(key) : self);
  }
  std::string dotted(const std::string &key) const { return path.empty() ? key : path + "." + key; }
  [[noreturn]] void fail(const std::string &key, const std::string &message);

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
