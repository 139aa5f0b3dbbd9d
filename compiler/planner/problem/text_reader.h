// Reads the planner's line-based text files. The first error ends the text: nothing more is read, and values are empty.
// It says file and line.
//
//   TextReader reader("cleave-problem 2\ntensor 0 \"x\" [8,16]\n", "p.txt", "cleave-problem 2");
//   while (reader.nextLine()) { reader.word(); reader.integer(); reader.quoted(); reader.list(); }
//   if (!reader.status()) ...
#pragma once
#include "runtime/base/status.h"
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace cleave::planner {

class TextReader {
public:
  // `header`: the first line, a word and a version.
  TextReader(const std::string &text, std::string file, const std::string &header);

  // Moves to the next line that is not empty and no comment ('#'). All words of the one before must have been read.
  bool nextLine();
  // More words on this line?
  bool more();
  std::string word();
  std::string quoted();
  int64_t integer();
  double number();             // finite, 0 or more
  std::vector<int64_t> list(); // [8,16]
  // The enum's value with the word as its name.
  template <typename Enum> Enum choice(std::span<const char *const> names) { return Enum(indexIn(names)); }
  void expect(const std::string &word);

  void fail(const std::string &message);
  const Status &status() const { return failure; }

private:
  size_t indexIn(std::span<const char *const> names);

  std::string text, file, line;
  size_t next = 0, at = 0;
  int number_ = 0;
  Status failure;
};

// "a, b" at ',': {"a", "b"}; spaces do not count.
std::vector<std::string> splitAt(const std::string &text, char separator);
bool parseInteger(const std::string &text, int64_t &value);
// "a\"b": quotes and backslashes escaped.
std::string quote(const std::string &text);

} // namespace cleave::planner
