#include "compiler/planner/problem/text_reader.h"
#include <algorithm>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace cleave::planner {

TextReader::TextReader(const std::string &text, std::string file, const std::string &header)
    : text(text), file(std::move(file)) {
  const size_t space = header.find(' ');
  if (!nextLine() || word() != header.substr(0, space)) fail(fmt::format("the first line must be '{}'", header));
  const int64_t version = integer();
  if (const std::string known = header.substr(space + 1); fmt::format("{}", version) != known)
    fail(fmt::format("version {} of the format; this program reads version {}", version, known));
}

bool TextReader::nextLine() {
  if (more()) fail(fmt::format("'{}' is too much", line.substr(at)));
  while (failure && next < text.size()) {
    const size_t end = std::min(text.find('\n', next), text.size());
    line = text.substr(next, end - next);
    next = end + 1;
    at = 0;
    ++number_;
    if (more() && line[at] != '#') return true;
  }
  at = line.size();
  return false;
}

bool TextReader::more() {
  at = std::min(line.find_first_not_of(" \t\r", at), line.size());
  return failure && at < line.size();
}

std::string TextReader::word() {
  if (!more()) fail("the line ends too early");
  const size_t begin = std::exchange(at, std::min(line.find_first_of(" \t\r", at), line.size()));
  return failure ? line.substr(begin, at - begin) : "";
}

void TextReader::expect(const std::string &wanted) {
  if (const std::string found = word(); found != wanted) fail(fmt::format("'{}' where '{}' is due", found, wanted));
}

std::string TextReader::quoted() {
  if (!more() || line[at] != '"') fail("a name in double quotes is due");
  std::string value;
  for (++at; at < line.size() && line[at] != '"'; ++at) {
    if (line[at] == '\\' && at + 1 < line.size()) ++at;
    value += line[at];
  }
  if (at++ >= line.size()) fail("a name lacks its closing quote");
  return value;
}

int64_t TextReader::integer() {
  int64_t value = 0;
  if (const std::string text = word(); !parseInteger(text, value)) fail(fmt::format("'{}' is no whole number", text));
  return value;
}

double TextReader::number() {
  const std::string text = word();
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
    fail(fmt::format("'{}' is no number, 0 or more", text));
  return value;
}

std::vector<int64_t> TextReader::list() {
  const std::string text = word();
  std::vector<int64_t> values;
  bool isList = text.size() >= 2 && text.front() == '[' && text.back() == ']';
  if (isList && text.size() > 2)
    for (const std::string &entry : splitAt(text.substr(1, text.size() - 2), ','))
      isList = isList && parseInteger(entry, values.emplace_back());
  if (!isList) fail(fmt::format("'{}' is no list such as [8,16]", text));
  return values;
}

size_t TextReader::indexIn(std::span<const char *const> names) {
  const std::string text = word();
  const auto found = std::ranges::find(names, text);
  if (found != names.end()) return size_t(found - names.begin());
  fail(fmt::format("'{}' is none of {}", text, fmt::join(names, ", ")));
  return 0;
}

void TextReader::fail(const std::string &message) {
  if (failure) failure = inputError(fmt::format("{}:{}: {}", file, std::max(1, number_), message));
}

std::vector<std::string> splitAt(const std::string &text, char separator) {
  std::vector<std::string> parts(1);
  for (char c : text) {
    if (c == separator)
      parts.emplace_back();
    else if (c != ' ')
      parts.back() += c;
  }
  return parts;
}

bool parseInteger(const std::string &text, int64_t &value) {
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  return failure == std::errc() && end == text.data() + text.size();
}

std::string quote(const std::string &text) {
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

} // namespace cleave::planner
