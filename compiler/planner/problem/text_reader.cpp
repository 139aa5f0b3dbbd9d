#include "compiler/planner/problem/text_reader.h"
#include <charconv>
#include <cmath>
#include <fmt/format.h>

namespace cleave::planner {

bool TextReader::nextLine() {
  while (next < text.size()) {
    size_t end = std::min(text.find('\n', next), text.size());
    line = text.substr(next, end - next);
    next = end + 1;
    at = 0;
    ++number_;
    if (more() && line[at] != '#') return true;
  }
  line.clear();
  at = 0;
  return false;
}

Status TextReader::header(const std::string &name, int64_t version) {
  std::string found;
  int64_t number = 0;
  if (!nextLine() || !word(found) || found != name)
    return error(fmt::format("the first line must be '{} {}'", name, version));
  CLEAVE_RETURN_IF_ERROR(integer(number));
  if (number != version)
    return error(fmt::format("version {} of the format; this program reads version {}", number, version));
  return endOfLine();
}

bool TextReader::more() {
  while (at < line.size() && (line[at] == ' ' || line[at] == '\t' || line[at] == '\r')) ++at;
  return at < line.size();
}

Status TextReader::word(std::string &value) {
  if (!more()) return error("the line ends too early");
  size_t end = at;
  while (end < line.size() && line[end] != ' ' && line[end] != '\t' && line[end] != '\r') ++end;
  value = line.substr(at, end - at);
  at = end;
  return Status::ok();
}

Status TextReader::expect(const std::string &wanted) {
  std::string found;
  CLEAVE_RETURN_IF_ERROR(word(found));
  return found == wanted ? Status::ok() : error(fmt::format("'{}' where '{}' is due", found, wanted));
}

Status TextReader::quoted(std::string &value) {
  if (!more() || line[at] != '"') return error("a name in double quotes is due");
  value.clear();
  for (++at; at < line.size(); ++at) {
    if (line[at] == '"') {
      ++at;
      return Status::ok();
    }
    if (line[at] == '\\' && at + 1 < line.size()) ++at;
    value += line[at];
  }
  return error("a name lacks its closing quote");
}

Status TextReader::integer(int64_t &value) {
  std::string text;
  CLEAVE_RETURN_IF_ERROR(word(text));
  return parseInteger(text, value) ? Status::ok() : error(fmt::format("'{}' is no whole number", text));
}

Status TextReader::number(double &value) {
  std::string text;
  CLEAVE_RETURN_IF_ERROR(word(text));
  auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failure != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0)
    return error(fmt::format("'{}' is no number, 0 or more", text));
  return Status::ok();
}

Status TextReader::list(std::vector<int64_t> &values) {
  std::string text;
  CLEAVE_RETURN_IF_ERROR(word(text));
  if (text.size() < 2 || text.front() != '[' || text.back() != ']')
    return error(fmt::format("'{}' is no list such as [8,16]", text));
  values.clear();
  for (size_t begin = 1; begin + 1 < text.size();) {
    size_t comma = std::min(text.find(',', begin), text.size() - 1);
    int64_t value = 0;
    if (!parseInteger(text.substr(begin, comma - begin), value))
      return error(fmt::format("'{}' is no list such as [8,16]", text));
    values.push_back(value);
    begin = comma + 1;
  }
  return Status::ok();
}

Status TextReader::choice(std::span<const char *const> names, int64_t &index) {
  std::string text;
  CLEAVE_RETURN_IF_ERROR(word(text));
  for (size_t i = 0; i < names.size(); ++i)
    if (text == names[i]) {
      index = int64_t(i);
      return Status::ok();
    }
  std::string all;
  for (const char *name : names) all += fmt::format("{}{}", all.empty() ? "" : ", ", name);
  return error(fmt::format("'{}' is none of {}", text, all));
}

Status TextReader::endOfLine() {
  return more() ? error(fmt::format("'{}' is too much", line.substr(at))) : Status::ok();
}

Status TextReader::error(const std::string &message) const {
  return inputError(fmt::format("{}:{}: {}", file, std::max(1, number_), message));
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

std::string joinIntegers(const std::vector<int64_t> &values) {
  std::string out;
  for (int64_t value : values) out += fmt::format("{}{}", out.empty() ? "" : ",", value);
  return out;
}

} // namespace cleave::planner
