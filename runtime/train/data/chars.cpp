#include "runtime/train/data/array.h"
#include "runtime/train/data/kinds.h"
#include "runtime/train/data/sequence.h"
#include "runtime/base/printable.h"
#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace cleave::runtime {
namespace {

// The characters (code points) of UTF-8 text. Error: bytes that are not UTF-8.
Result<std::vector<char32_t>> decode(std::string_view text, const std::string &path) {
  std::vector<char32_t> characters;
  characters.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const auto [code, bytes] = characterAt(text.substr(i));
    if (bytes == 0) return inputError(fmt::format("{}: byte {} is not UTF-8 text", path, i));
    characters.push_back(code);
    i += bytes;
  }
  return characters;
}

void encode(char32_t code, std::string &out) {
  auto push = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return push(code);
  if (code < 0x800) {
    push(0xc0 | code >> 6);
  } else {
    if (code < 0x10000) {
      push(0xe0 | code >> 12);
    } else {
      push(0xf0 | code >> 18);
      push(0x80 | (code >> 12 & 0x3f));
    }
    push(0x80 | (code >> 6 & 0x3f));
  }
  push(0x80 | (code & 0x3f));
}

} // namespace

Result<DataSource> openChars(const DataSettings &settings, const std::vector<Field> &fields) {
  Result<std::shared_ptr<MappedFile>> file = MappedFile::open(settings.path);
  if (!file) return file.status();
  Result<int64_t> block = blockLength(settings, fields);
  if (!block) return block.status();
  Result<std::vector<Content>> contents = contentsOf(settings, fields);
  if (!contents) return contents.status();
  Result<std::vector<char32_t>> text = decode((*file)->bytes(), settings.path);
  if (!text) return text.status();
  if (settings.truncate > 0 && static_cast<size_t>(settings.truncate) < text->size())
    text->resize(static_cast<size_t>(settings.truncate));

  std::map<char32_t, int32_t> numbers;
  for (char32_t code : *text) numbers.emplace(code, 0);
  DataSource source;
  int32_t next = 0;
  for (auto &[code, number] : numbers) {
    number = next++;
    encode(code, source.vocabulary);
  }
  for (size_t i = 0; i < fields.size(); ++i)
    if (const Field &field = fields[i]; field.upperBound > 0 && field.upperBound < next &&
                                        ((*contents)[i] == Content::Tokens || (*contents)[i] == Content::NextTokens))
      return inputError(fmt::format("{}: has {} different characters, but the model's '{}' knows only {}",
                                    settings.path, next, field.name, field.upperBound));
  auto tokens = std::make_shared<std::vector<int32_t>>(text->size());
  std::transform(text->begin(), text->end(), tokens->begin(), [&](char32_t code) { return numbers.at(code); });

  auto total = static_cast<int64_t>(tokens->size());
  TokenAt tokenAt = [tokens](int64_t i) { return (*tokens)[static_cast<size_t>(i)]; };
  SequenceSettings sequences{settings.path, *block, 1, settings.shuffle, *contents};
  CLEAVE_RETURN_IF_ERROR(splitSequences(sequences, fields, tokenAt, total, settings.trainSplit, source));
  return source;
}

} // namespace cleave::runtime
