#include "compiler/recipe/keys.h"
#include "compiler/recipe/schema.h"
#include <fmt/ranges.h>

namespace cleave::recipe {

const std::vector<KeyRow> &keys() {
  static const std::vector<KeyRow> all = [] {
    std::vector<KeyRow> rows;
    listKeys("", Schema<Recipe>::of, rows);
    return rows;
  }();
  return all;
}

bool isKey(const std::string &path) {
  return std::ranges::any_of(keys(), [&](const KeyRow &key) {
    std::string_view known = key.path;
    return path == known || (known.ends_with(".*") && path.starts_with(known.substr(0, known.size() - 1)));
  });
}

std::string useFault(const std::string &path, const std::string &kind) {
  std::string owner = path; // optimizer.groups.eps is as optimizer.eps, init.rules.std as init.std
  for (std::string_view list : {".groups.", ".rules."})
    if (const size_t at = owner.find(list); at != std::string::npos) owner.erase(at, list.size() - 1);
  for (const KeyRow &key : keys()) {
    if (owner != key.path) continue;
    if (isOneOf(key.kinds, kind)) return "";
    return fmt::format("'{}' is for {}, this is {}; leave it out", path, fmt::join(splitWords(key.kinds), ", "), kind);
  }
  return "";
}

namespace {

template <typename Kind> std::vector<std::string> wordList() {
  constexpr auto words = wordsOf(Kind());
  return {words.begin(), words.end()};
}

// "`sgd`, `muon`: ", or by what is left out where that is shorter; "" where all kinds use the key.
std::string documentKinds(const KeyRow &key) {
  if (*key.kinds == '\0') return "";
  const std::string_view path = key.path;
  const std::vector<std::string> kinds = splitWords(key.kinds),
                                 known = path.starts_with("loss.")           ? wordList<LossKind>()
                                         : path.starts_with("optimizer.lr.") ? wordList<ScheduleKind>()
                                         : path.starts_with("optimizer.")    ? wordList<OptimizerKind>()
                                                                             : kinds;
  std::vector<std::string> used, others;
  for (const std::string &word : known) (isOneOf(key.kinds, word) ? used : others).push_back(fmt::format("`{}`", word));
  return others.size() < used.size() && !others.empty() ? fmt::format("all but {}: ", fmt::join(others, ", "))
                                                        : fmt::format("{}: ", fmt::join(used, ", "));
}

} // namespace

std::string documentKeys() {
  std::string text = "| key | meaning | where it is left out |\n|---|---|---|\n";
  for (const KeyRow &key : keys())
    text += fmt::format("| `{}` | {}{} | {} |\n", key.path, documentKinds(key), key.meaning, key.fallback);
  return text;
}

} // namespace cleave::recipe
