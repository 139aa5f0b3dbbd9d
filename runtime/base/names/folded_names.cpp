#include "runtime/base/names/folded_names.h"
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <optional>

namespace cleave::names {
namespace {

// "0", "12": no sign, no leading zeros.
std::optional<int64_t> plainNumber(const std::string &text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || std::to_string(value) != text) return std::nullopt;
  return value;
}

// "0..11", "40..115..15" where numbers have one distance, else "{words}".
std::string series(const std::vector<std::string> &words) {
  std::vector<int64_t> numbers;
  for (const std::string &word : words)
    if (std::optional<int64_t> number = plainNumber(word)) numbers.push_back(*number);
  const std::string list = fmt::format("{{{}}}", fmt::join(words, ","));
  if (numbers.size() != words.size()) return list;
  const int64_t distance = numbers[1] - numbers[0];
  if (words.size() == 2 && distance != 1) return list;
  for (size_t i = 1; i < numbers.size(); ++i)
    if (distance < 1 || numbers[i] - numbers[i - 1] != distance) return list;
  return fmt::format("{}..{}{}", numbers.front(), numbers.back(), distance == 1 ? "" : fmt::format("..{}", distance));
}

} // namespace

std::string foldedNames(const std::vector<std::string> &names) {
  if (names.empty()) return "";
  if (std::ranges::all_of(names, [&](const std::string &name) { return name == names[0]; })) return names[0];
  size_t head = names[0].size(), tail = head;
  for (const std::string &name : names) {
    head = std::min(head, size_t(std::ranges::mismatch(names[0], name).in1 - names[0].begin()));
    const size_t same =
        size_t(std::mismatch(names[0].rbegin(), names[0].rend(), name.rbegin(), name.rend()).first - names[0].rbegin());
    tail = std::min(tail, same);
  }
  // Numbers stay whole: "layers.{9,10}", not "layers.{9,1}0".
  const auto isDigit = [](char c) { return c >= '0' && c <= '9'; };
  while (head > 0 && isDigit(names[0][head - 1])) --head;
  for (const std::string &name : names) tail = std::min(tail, name.size() - head);
  while (tail > 0 && isDigit(names[0][names[0].size() - tail])) --tail;
  std::vector<std::string> middles;
  middles.reserve(names.size());
  for (const std::string &name : names) middles.push_back(name.substr(head, name.size() - head - tail));
  return names[0].substr(0, head) + series(middles) + names[0].substr(names[0].size() - tail);
}

} // namespace cleave::names
