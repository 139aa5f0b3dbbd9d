#include "runtime/base/printable.h"
#include "runtime/train/data/array.h"
#include "runtime/train/data/kinds.h"
#include "runtime/train/data/sequence.h"
#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace cleave::runtime {
namespace {

// The code points of UTF-8 text, up to `most` of them (0: all), and how each is written. Error: bytes that are not
// UTF-8.
Result<std::vector<char32_t>> decode(std::string_view text, const std::string &path, int64_t most,
                                     std::map<char32_t, std::string_view> &written) {
  std::vector<char32_t> characters;
  characters.reserve(text.size());
  for (size_t i = 0; i < text.size() && (most <= 0 || std::ssize(characters) < most);) {
    const auto [code, bytes] = characterAt(text.substr(i));
    if (bytes == 0) return inputError(fmt::format("{}: byte {} is not UTF-8 text", path, i));
    characters.push_back(code);
    written.try_emplace(code, text.substr(i, bytes));
    i += bytes;
  }
  return characters;
}

} // namespace

Result<DataSource> openChars(const DataSettings &settings, const std::vector<Field> &fields) {
  CLEAVE_ASSIGN_OR_RETURN(std::shared_ptr<MappedFile> file, MappedFile::open(settings.path));
  CLEAVE_ASSIGN_OR_RETURN(int64_t block, blockLength(settings, fields));
  CLEAVE_ASSIGN_OR_RETURN(std::vector<Content> contents, contentsOf(settings, fields));
  std::map<char32_t, std::string_view> written;
  CLEAVE_ASSIGN_OR_RETURN(std::vector<char32_t> text, decode(file->bytes(), settings.path, settings.truncate, written));

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
                                    settings.path, next, field.name, field.upperBound));
  auto tokens = std::make_shared<std::vector<int32_t>>(text.size());
  std::transform(text.begin(), text.end(), tokens->begin(), [&](char32_t code) { return numbers.at(code); });

  auto total = static_cast<int64_t>(tokens->size());
  TokenAt tokenAt = [tokens](int64_t i) { return (*tokens)[static_cast<size_t>(i)]; };
  SequenceSettings sequences{settings.path, block, 1, settings.shuffle, contents};
  CLEAVE_RETURN_IF_ERROR(splitSequences(sequences, fields, tokenAt, total, settings.trainSplit, source));
  return source;
}

} // namespace cleave::runtime
