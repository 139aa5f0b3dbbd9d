// Reads the planner's line-based text files; every error says file and line.
//
//   TextReader reader("tensor 0 \"x\" [8,16]\n", "p.txt");
//   reader.nextLine(); reader.word(word); reader.integer(index); reader.quoted(name); reader.list(dims);
#pragma once
#include "runtime/status.h"
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cleave::planner {

class TextReader {
public:
  TextReader(const std::string &text, std::string file) : text(text), file(std::move(file)) {}

  // Moves to the next line that is not empty and no comment ('#').
  bool nextLine();
  // The first line: "WORD VERSION".
  Status header(const std::string &word, int64_t version);
  // More words on this line?
  bool more();
  Status word(std::string &value);
  Status expect(const std::string &word);
  Status quoted(std::string &value);
  Status integer(int64_t &value);
  Status number(double &value);
  Status list(std::vector<int64_t> &values); // [8,16]
  Status choice(std::span<const char *const> names, int64_t &index);
  Status endOfLine();
  Status error(const std::string &message) const;

private:
  std::string text, file, line;
  size_t next = 0, at = 0;
  int number_ = 0;
};

// "a, b" at ',': {"a", "b"}; spaces do not count.
std::vector<std::string> splitAt(const std::string &text, char separator);
bool parseInteger(const std::string &text, int64_t &value);
// "a\"b": quotes and backslashes escaped.
std::string quote(const std::string &text);
// "8,16"
std::string joinIntegers(const std::vector<int64_t> &values);

} // namespace cleave::planner
