#include "runtime/plan/dtype.h"
#include "runtime/train/data/files.h"
#include "runtime/train/data/joined_array.h"
#include "runtime/train/data/kinds.h"
#include "runtime/train/data/ragged.h"
#include "runtime/train/data/sequence.h"
#include "runtime/train/data/token_file.h"
#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

namespace cleave::runtime {
namespace {

// The recipe's files, with as many tokens of them as it wants.
Result<std::vector<TokenFile>> openTokenFiles(const DataSettings &settings) {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<std::string> paths, filesOf(settings.paths, {{".bin", ".npy"}}));
  std::vector<TokenFile> files;
  int64_t total = 0;
  for (const std::string &path : paths) {
    CLEAVE_ASSIGN_OR_RETURN(TokenFile file, openTokenFile(path, settings.dtype, !settings.lengths.empty()));
    Array &tokens = file.tokens;
    file.whole = tokens;
    if (settings.truncate > 0) tokens.shape[0] = std::min(tokens.shape[0], settings.truncate - total);
    tokens.bytes = tokens.bytes.first(static_cast<size_t>(tokens.shape[0] * byteSize(tokens.dtype)));
    total += tokens.shape[0];
    files.push_back(std::move(file));
  }
  return files;
}

// Adds the samples of one document: its tokens [begin, end) of all, the last of which is a label only. One that is
// longer than the longest length becomes several.
void addDocument(int64_t begin, int64_t end, int64_t longest, std::vector<SamplePart> &samples) {
  for (; begin + 1 < end; begin += longest) samples.push_back({begin, std::min(longest, end - 1 - begin)});
}

// The file's documents go up to a separator, with it. `first`: of its tokens among all.
Status addSeparated(const TokenFile &file, int64_t first, int64_t separator, int64_t longest,
                    std::vector<SamplePart> &samples) {
  constexpr int64_t atOnce = 65536;
  const int64_t total = file.tokens.shape[0], whole = file.whole.shape[0];
  std::vector<int64_t> tokens(atOnce);
  int64_t begin = 0;
  bool isThere = false; // perhaps behind what data.truncate leaves
  for (int64_t at = 0; at < (isThere ? total : whole); at += atOnce) {
    const int64_t count = std::min(atOnce, whole - at);
    CLEAVE_RETURN_IF_ERROR(
        convertElements(file.whole, at, count, plan::I64, reinterpret_cast<std::byte *>(tokens.data())));
    for (int64_t i = 0; i < count; ++i) {
      if (tokens[static_cast<size_t>(i)] != separator) continue;
      isThere = true;
      if (at + i < total) addDocument(first + std::exchange(begin, at + i + 1), first + at + i + 1, longest, samples);
    }
  }
  if (!isThere)
    return inputError(fmt::format("{}: the separator {} is not among its {} tokens", file.path, separator, whole));
  addDocument(first + begin, first + total, longest, samples);
  return Status::ok();
}

// Samples are the documents of an .idx, or what stands up to a separator; their labels are the tokens behind.
Result<DataSource> openDocuments(const DataSettings &settings, const std::vector<Field> &fields,
                                 const std::vector<Content> &contents) {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<TokenFile> files, openTokenFiles(settings));
  const int64_t longest = settings.lengths.back();
  std::vector<SamplePart> samples;
  JoinedArray all;
  for (const TokenFile &file : files) {
    if (file.tokens.shape[0] == 0) continue; // behind data.truncate
    const int64_t first = all.elements();
    all.add(file.tokens, file.path);
    if (file.documents && settings.separator)
      return inputError(file.path + ": its .idx says where documents end: leave data.separator out");
    if (!file.documents && !settings.separator)
      return inputError(file.path + ": data.lengths of tokens needs data.separator, the token that ends a sample");
    if (!file.documents) {
      CLEAVE_RETURN_IF_ERROR(addSeparated(file, first, *settings.separator, longest, samples));
      continue;
    }
    for (size_t i = 1; i < file.documents->size(); ++i)
      addDocument(first + (*file.documents)[i - 1], first + std::min((*file.documents)[i], file.tokens.shape[0]),
                  longest, samples);
  }
  std::vector<RaggedSource> sources;
  for (size_t i = 0; i < fields.size(); ++i) {
    const Field &field = fields[i];
    RaggedSource &source = sources.emplace_back(RaggedSource{.content = contents[i]});
    if (source.content == Content::NextTokens) source.shift = 1;
    if (source.content == Content::Tokens || source.content == Content::NextTokens) source.array = all;
    if (!source.array.empty() &&
        (field.lengthDims.size() != 1 || field.elements() != field.shape[field.lengthDims.front()]))
      return inputError(
          fmt::format("data of kind 'tokens' fills inputs of one number a position; '{}' is [{}] a sample", field.name,
                      fmt::join(field.shape, ", ")));
  }
  return makeRagged(settings, fields, std::move(sources), std::move(samples));
}

} // namespace

Result<DataSource> openTokens(const DataSettings &settings, const std::vector<Field> &fields) {
  CLEAVE_ASSIGN_OR_RETURN(std::vector<Content> contents, contentsOf(settings, fields));
  if (!settings.lengths.empty()) return openDocuments(settings, fields, contents);
  CLEAVE_ASSIGN_OR_RETURN(int64_t block, blockLength(settings, fields));
  CLEAVE_ASSIGN_OR_RETURN(std::vector<TokenFile> files, openTokenFiles(settings));
  SequenceSettings sequences{{}, block, block, settings.shuffle, contents};
  JoinedArray all;
  for (TokenFile &file : files) {
    const int64_t begin = all.elements();
    all.add(std::move(file.tokens), file.path);
    sequences.files.push_back({std::move(file.path), begin, all.elements()});
  }
  TokensAt tokensAt = [all](int64_t first, std::span<int64_t> out) {
    // The types were checked when the files were opened.
    (void)all.convert(first, std::ssize(out), plan::I64, reinterpret_cast<std::byte *>(out.data())).isOk();
  };
  DataSource source;
  CLEAVE_RETURN_IF_ERROR(splitSequences(sequences, fields, tokensAt, settings.trainSplit, source));
  return source;
}

} // namespace cleave::runtime
