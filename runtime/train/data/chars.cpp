#include "runtime/base/printable.h"
#include "runtime/train/data/array.h"
#include "runtime/train/data/files.h"
#include "runtime/train/data/kinds.h"
#include "runtime/train/data/sequence.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>

namespace cleave::runtime {
namespace {

// Adds the code points of UTF-8 text, until there are `most` of them (0: all), and how each is written. Error: bytes
// that are not UTF-8.
Status decode(std::string_view text, const std::string &path, int64_t most, std::vector<char32_t> &characters,
              std::map<char32_t, std::string> &written) {
  characters.reserve(characters.size() + text.size());
  for (size_t i = 0; i < text.size() && (most <= 0 || std::ssize(characters) < most);) {
    const auto [code, bytes] = characterAt(text.substr(i));
    if (bytes == 0) return inputError(fmt::format("{}: byte {} is not UTF-8 text", path, i));
    characters.push_back(code);
    written.try_emplace(code, text.substr(i, bytes));
    i += bytes;
  }
  return Status::ok();
}

} // namespace

Result<DataSource> openChars(const DataSettings &settings, const std::vector<Field> &fields) {
  CLEAVE_ASSIGN_OR_RETURN(int64_t block, blockLength(settings, fields));
  CLEAVE_ASSIGN_OR_RETURN(std::vector<Content> contents, contentsOf(settings, fields));
  CLEAVE_ASSIGN_OR_RETURN(std::vector<std::string> paths, filesOf(settings.paths, {{".txt"}}));
  SequenceSettings sequences{{}, block, 1, settings.shuffle, contents};
  std::map<char32_t, std::string> written;
  std::vector<char32_t> text;
  for (const std::string &path : paths) {
    CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open(path));
    const int64_t begin = std::ssize(text);
    CLEAVE_RETURN_IF_ERROR(decode(file->bytes(), path, settings.truncate, text, written));
    sequences.files.push_back({path, begin, std::ssize(text)});
  }

  std::map<char32_t, int32_t> numbers;
  DataSource source;
  int32_t next = 0;
  for (const auto &[code, bytes] : written) {
    numbers[code] = next++;
    source.vocabulary += bytes;
  }
  for (size_t i = 0; i < fields.size(); ++i)
    if (const Field &field = fields[i]; field.upperBound > 0 && field.upperBound < next &&
                                        (contents[i] == Content::Tokens || contents[i] == Content::NextTokens))
      return inputError(fmt::format("{}: has {} different characters, but the model's '{}' knows only {}",
                                    fmt::join(settings.paths, ", "), next, field.name, field.upperBound));
  auto tokens = std::make_shared<std::vector<int32_t>>(text.size());
  std::transform(text.begin(), text.end(), tokens->begin(), [&](char32_t code) { return numbers.at(code); });

  TokensAt tokensAt = [tokens](int64_t first, std::span<int64_t> out) {
    std::copy_n(tokens->begin() + first, out.size(), out.begin());
  };
  CLEAVE_RETURN_IF_ERROR(splitSequences(sequences, fields, tokensAt, settings.trainSplit, source));
  return source;
}

} // namespace cleave::runtime
