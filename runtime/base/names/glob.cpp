#include "runtime/base/names/glob.h"
#include <algorithm>
#include <cctype>
#include <fmt/format.h>

namespace cleave::names {
namespace {

// Characters to replace, leave out or add until the pattern fits the name.
size_t editDistance(const std::string &pattern, const std::string &name) {
  std::vector<size_t> before(name.size() + 1), row(before);
  for (size_t n = 0; n <= name.size(); ++n) before[n] = n;
  for (char letter : pattern) {
    const bool isRun = letter == '*';
    row[0] = before[0] + !isRun;
    for (size_t n = 1; n <= name.size(); ++n) {
      const size_t replaced = before[n - 1] + (letter != '?' && letter != name[n - 1]);
      row[n] = isRun ? std::min(before[n], row[n - 1]) : std::min({replaced, before[n] + 1, row[n - 1] + 1});
    }
    std::swap(before, row);
  }
  return before.back();
}

} // namespace

bool matchGlob(const std::string &pattern, const std::string &name) {
  size_t p = 0, n = 0, star = std::string::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool isGlob(const std::string &text) { return text.find_first_of("*?") != std::string::npos; }

std::string nearest(const std::string &wordOrGlob, const std::vector<std::string> &candidates) {
  auto isSameLetter = [](unsigned char a, unsigned char b) { return std::tolower(a) == std::tolower(b); };
  for (const std::string &candidate : candidates)
    if (std::ranges::equal(candidate, wordOrGlob, isSameLetter)) return candidate;
  // A third of what is written out may differ: of a short glob nothing would be left.
  const auto written = size_t(std::ranges::count_if(wordOrGlob, [](char letter) { return letter != '*'; }));
  const size_t least = isGlob(wordOrGlob) ? 0 : 2;
  size_t bestDistance = std::max(least, written / 3) + 1;
  std::string best;
  for (const std::string &candidate : candidates)
    if (size_t distance = editDistance(wordOrGlob, candidate); distance < bestDistance) {
      best = candidate;
      bestDistance = distance;
    }
  return best;
}

std::string suggestion(const std::string &wordOrGlob, const std::vector<std::string> &candidates) {
  const std::string name = nearest(wordOrGlob, candidates);
  if (name.empty()) return "";
  return isGlob(wordOrGlob) ? fmt::format("; the nearest name is '{}'", name)
                            : fmt::format("; did you mean '{}'?", name);
}

} // namespace cleave::names
